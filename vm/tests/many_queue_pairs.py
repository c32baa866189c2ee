#!/usr/bin/python3
"""2000 queue pairs at once, or as many as the device has; the first and the last work."""

from ends import Ends, open_device, queue_pair
from pyverbs.cq import CQ
from pyverbs.pd import PD

with open_device() as context:
    count = min(2000, context.query_device().max_qp - 16)
    first = Ends(context)
    pd, cq = PD(context), CQ(context, 8192)
    queue_pairs = [queue_pair(pd, cq, depth=4) for _ in range(count)]
    assert len({one.qp_num for one in queue_pairs}) == count
    last = Ends(context)
    first.move("first")
    last.move("last")
    print(count, "queue pairs")
