"""Two connected RC queue pairs of one process on the guest's device, for the programs beside this file."""

import errno
import os
import time
from types import SimpleNamespace

from pyverbs import libibverbs_enums
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

# All constants by their names in C; pyverbs has a class for each of C's types.
e = SimpleNamespace(
    **{
        name: member
        for kind in vars(libibverbs_enums).values()
        for name, member in getattr(kind, "__members__", {}).items()
    }
)

PORT = 1
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
LIMIT = 10  # seconds until a completion is missed


def open_device():
    return Context(name=os.environ["DEV"])


def queue_pair(pd, cq, depth=16):
    caps = QPCap(max_send_wr=depth, max_recv_wr=depth, max_send_sge=1, max_recv_sge=1)
    return QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=caps, sq_sig_all=1))


def connect(context, own, other):
    """Brings `own` up to send to queue pair number `other` on this device."""
    index = int(os.environ["GID"])
    route = GlobalRoute(dgid=context.query_gid(PORT, index), sgid_index=index, hop_limit=64)
    attributes = QPAttr(port_num=PORT)
    attributes.qp_access_flags = ACCESS
    attributes.ah_attr = AHAttr(is_global=1, port_num=PORT, gr=route)
    attributes.dest_qp_num = other
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
    attributes.min_rnr_timer, attributes.timeout = 12, 14
    attributes.retry_cnt = attributes.rnr_retry = 7
    own.to_rts(attributes)


def completion(cq):
    """The next one of `cq`."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        count, found = cq.poll(1)
        if count:
            return found[0]
    raise TimeoutError("no completion")


def expect(number, action):
    """`action` must fail with this errno."""
    try:
        action()
    except PyverbsRDMAError as error:
        assert error.error_code == number, f"{error}, not {errno.errorcode[number]}"
    else:
        raise AssertionError(f"succeeded, and did not fail with {errno.errorcode[number]}")


class Ends:
    """`left` and `right`, connected, on one completion queue, and a region that each owns."""

    def __init__(self, context, length=4096, regions=None):
        self.pd = PD(context)
        self.cq = CQ(context, 64)
        self.left, self.right = queue_pair(self.pd, self.cq), queue_pair(self.pd, self.cq)
        self.regions = regions(self.pd) if regions else [MR(self.pd, length, ACCESS) for _ in range(2)]
        connect(context, self.left, self.right.qp_num)
        connect(context, self.right, self.left.qp_num)

    def write(self, length, status=e.IBV_WC_SUCCESS):
        """`left` writes the beginning of its region to the other's."""
        own, other = self.regions
        request = SendWR(1, e.IBV_WR_RDMA_WRITE, 1, sg=[SGE(own.buf, length, own.lkey)])
        request.set_wr_rdma(other.rkey, other.buf)
        self.left.post_send(request)
        found = completion(self.cq)
        assert found.status == status, f"status {found.status}"

    def move(self, text):
        """A write of `text`, looked at on the other side."""
        own, other = self.regions
        own.write(text, len(text))
        self.write(len(text))
        assert other.read(len(text), 0) == text.encode(), other.read(len(text), 0)
