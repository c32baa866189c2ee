"""Every rank sends a different block to every other; every byte is looked at."""

from mpi4py import MPI

world = MPI.COMM_WORLD
for size in (1, 1000, 65536):
    sent = b"".join(bytes([world.rank * 16 + other]) * size for other in range(world.size))
    received = bytearray(len(sent))
    world.Alltoall(sent, received)
    expected = b"".join(bytes([other * 16 + world.rank]) * size for other in range(world.size))
    assert bytes(received) == expected, size
    total = world.allreduce(world.rank)
    assert total == world.size * (world.size - 1) // 2
world.Barrier()
if world.rank == 0:
    print("all-to-all whole,", world.size, "ranks")
