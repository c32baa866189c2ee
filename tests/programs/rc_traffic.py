"""Sends, writes and reads between two RC queue pairs; every byte is compared."""

import pyverbs.enums as e
from pyverbs.cq import CQ

from loopback import Loopback, open_device, pattern, poll

SIZES = [1, 8, 9, 64, 1024, 4096, 65536]


def check(label, expected, actual):
    assert expected == actual, f"{label}: {len(expected)} bytes differ"


def main():
    context = open_device()
    sender, receiver = CQ(context, 128), CQ(context, 128)
    pair = Loopback(context, sender, receiver)
    left, right = pair.regions

    for seed, size in enumerate(SIZES):
        for inline in ([0, e.IBV_SEND_INLINE] if size <= 64 else [0]):
            message = pattern(size, seed)
            left.write(message, size)
            right.write(bytes(size), size)
            pair.receive(wr_id=100 + seed, length=65536)
            pair.send(wr_id=seed, length=size, flags=e.IBV_SEND_SIGNALED | inline)
            (sent,), (received,) = poll(sender, 1), poll(receiver, 1)
            assert (sent.wr_id, sent.opcode) == (seed, e.IBV_WC_SEND), sent
            assert (received.wr_id, received.opcode) == (100 + seed, e.IBV_WC_RECV), received
            assert received.byte_len == size and received.qp_num == pair.right.qp_num, received
            check(f"send of {size}", message, right.read(size, 0))

        left.write(pattern(size, seed + 50), size)
        pair.send(wr_id=seed, length=size, opcode=e.IBV_WR_RDMA_WRITE)
        (written,) = poll(sender, 1)
        assert written.opcode == e.IBV_WC_RDMA_WRITE, written
        check(f"write of {size}", pattern(size, seed + 50), right.read(size, 0))

        right.write(pattern(size, seed + 100), size)
        pair.send(wr_id=seed, length=size, opcode=e.IBV_WR_RDMA_READ)
        (read,) = poll(sender, 1)
        assert read.opcode == e.IBV_WC_RDMA_READ, read
        check(f"read of {size}", pattern(size, seed + 100), left.read(size, 0))

    # Several laps around the queues, in bursts, one signaled request in four.
    for lap in range(50):
        for index in range(16):
            pair.receive(wr_id=1000 + index, length=64)
        for index in range(16):
            signaled = e.IBV_SEND_SIGNALED if index % 4 == 3 else 0
            pair.send(wr_id=index, length=64, flags=signaled)
        assert [one.wr_id for one in poll(sender, 4)] == [3, 7, 11, 15], lap
        assert [one.wr_id for one in poll(receiver, 16)] == [1000 + index for index in range(16)], lap

    # A message that one side announces with a number. Which kind of receive it was, rdma-core 44's
    # provider does not tell.
    for opcode in (e.IBV_WR_SEND_WITH_IMM, e.IBV_WR_RDMA_WRITE_WITH_IMM):
        pair.receive(wr_id=7, length=64)
        pair.send(wr_id=8, length=32, opcode=opcode, immediate=0x01020304)
        poll(sender, 1)
        (received,) = poll(receiver, 1)
        assert received.opcode & e.IBV_WC_RECV and received.wc_flags & e.IBV_WC_WITH_IMM, received
        assert received.imm_data == 0x01020304 and received.byte_len == 32, received


main()
print("rc_traffic: good")
