"""Two connected RC queue pairs of one process, for the programs beside this file."""

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT = 1
ALL_ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ


def open_device():
    """The first irdma device of the list."""
    names = [device.name.decode() for device in get_device_list()]
    assert names, "no RDMA device"
    return Context(name=names[0])


class Loopback:
    """`left` sends to `right`: queue pairs on the given CQs, and a region that each owns."""

    def __init__(self, context, left_cq, right_cq, length=65536):
        self.context = context
        self.pd = PD(context)
        self.regions = [MR(self.pd, length, ALL_ACCESS) for _ in range(2)]
        self.left, self.right = (self._queue_pair(cq) for cq in (left_cq, right_cq))
        for own, other in ((self.left, self.right), (self.right, self.left)):
            own.to_rts(self._attributes(other.qp_num))

    def _queue_pair(self, cq):
        caps = QPCap(max_send_wr=64, max_recv_wr=64, max_send_sge=2, max_recv_sge=2, max_inline_data=64)
        return QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=caps, sq_sig_all=0))

    def _attributes(self, other):
        route = GlobalRoute(dgid=self.context.query_gid(PORT, 0), sgid_index=0, hop_limit=64)
        attributes = QPAttr(port_num=PORT)
        attributes.qp_access_flags = ALL_ACCESS
        attributes.ah_attr = AHAttr(is_global=1, port_num=PORT, gr=route)
        attributes.dest_qp_num = other
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
        attributes.min_rnr_timer = 12
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 14, 7, 7
        return attributes

    def receive(self, wr_id, length, offset=0):
        """`right` awaits a message in its region."""
        region = self.regions[1]
        self.right.post_recv(RecvWR(wr_id, 1, [SGE(region.buf + offset, length, region.lkey)]))

    def send(self, wr_id, length, opcode=e.IBV_WR_SEND, offset=0, flags=e.IBV_SEND_SIGNALED, immediate=0):
        """`left` sends from its region, or writes or reads the same place of the other's."""
        own, other = self.regions
        sge = SGE(own.buf + offset, length, own.lkey)
        request = SendWR(wr_id, opcode, 1, immediate, [sge], flags)
        if opcode != e.IBV_WR_SEND and opcode != e.IBV_WR_SEND_WITH_IMM:
            request.set_wr_rdma(other.rkey, other.buf + offset)
        self.left.post_send(request)


def poll(cq, count):
    """`count` completions of a CQ, all good."""
    found = []
    while len(found) < count:
        _, completions = cq.poll(count - len(found))
        for completion in completions:
            assert completion.status == e.IBV_WC_SUCCESS, f"status {completion.status} of {completion.wr_id}"
        found += completions
    return found


def pattern(length, seed):
    """Bytes that differ from place to place and from seed to seed."""
    return bytes((7 * index + seed) % 251 for index in range(length))
