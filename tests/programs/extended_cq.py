"""Completions read through the extended polling interface."""

import pyverbs.enums as e
from pyverbs.cq import CQEX, CqInitAttrEx, PollCqAttr

from loopback import Loopback, open_device

ENOENT = 2
WANTED = e.IBV_WC_EX_WITH_BYTE_LEN | e.IBV_WC_EX_WITH_IMM | e.IBV_WC_EX_WITH_QP_NUM | e.IBV_WC_EX_WITH_SRC_QP


def poll(cq, count, look):
    """`look(cq)` for each of `count` completions, batch by batch as the interface gives them."""
    found = []
    while len(found) < count:
        result = cq.start_poll(PollCqAttr())
        if result == ENOENT:
            continue
        assert result == 0, result
        while result == 0:
            assert cq.status == e.IBV_WC_SUCCESS, cq.status
            found.append(look(cq))
            result = cq.poll_next() if len(found) < count else ENOENT
        assert result == ENOENT, result
        cq.end_poll()
    return found


def main():
    context = open_device()
    sender, receiver = (CQEX(context, CqInitAttrEx(cqe=128, wc_flags=WANTED)) for _ in range(2))
    pair = Loopback(context, sender, receiver)

    for lap in range(40):
        for index in range(8):
            pair.receive(wr_id=100 + index, length=512, offset=512 * index)
        for index in range(8):
            pair.send(
                wr_id=index,
                length=10 + index,
                opcode=e.IBV_WR_SEND_WITH_IMM,
                offset=512 * index,
                immediate=0xA0 + index,
            )
        sent = poll(sender, 8, lambda cq: (cq.wr_id, cq.read_opcode(), cq.read_qp_num()))
        assert sent == [(index, e.IBV_WC_SEND, pair.left.qp_num) for index in range(8)], (lap, sent)
        received = poll(
            receiver,
            8,
            lambda cq: (
                cq.wr_id,
                # Which kind of receive it was, rdma-core 44's provider does not tell.
                cq.read_opcode() & e.IBV_WC_RECV,
                cq.read_qp_num(),
                cq.read_byte_len(),
                cq.read_imm_data(),
                cq.read_wc_flags() & e.IBV_WC_WITH_IMM,
            ),
        )
        expected = [
            (100 + index, e.IBV_WC_RECV, pair.right.qp_num, 10 + index, 0xA0 + index, e.IBV_WC_WITH_IMM)
            for index in range(8)
        ]
        assert received == expected, (lap, received)
    assert receiver.start_poll(PollCqAttr()) == ENOENT


main()
print("extended_cq: good")
