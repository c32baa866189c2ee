"""Two ranks send each other messages of growing size; every byte is looked at."""

from mpi4py import MPI

world = MPI.COMM_WORLD
other = 1 - world.rank
assert world.size == 2
for size in (0, 1, 8, 1000, 8192, 65536, 1 << 20):
    for turn in range(5):
        sent = bytes((turn + n) % 251 for n in range(min(size, 4096))) * (size // max(1, min(size, 4096)))
        received = bytearray(len(sent))
        if world.rank == 0:
            world.Send(sent, other, turn)
            world.Recv(received, other, turn)
        else:
            world.Recv(received, other, turn)
            world.Send(received, other, turn)
        assert bytes(received) == sent, (size, turn)
if world.rank == 0:
    print("ping-pong whole")
