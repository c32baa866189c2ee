#!/usr/bin/python3
"""`rdma resource show` counts what a program holds, and nothing of it when it is gone."""

import json
import os
import subprocess

from ends import ACCESS, open_device, queue_pair
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD


def shown(kind):
    """The objects that the kernel says this process holds."""
    output = subprocess.run(["rdma", "-j", "resource", "show", kind], check=True, capture_output=True).stdout
    return [one for one in json.loads(output or b"[]") if one.get("pid") == os.getpid()]


def counts():
    return {kind: len(shown(kind)) for kind in ("pd", "cq", "qp", "mr")}


before = counts()
assert not any(before.values()), before
context = open_device()
# The provider's own domain: of ours with the first object.
PD(context).close()
own = counts()
assert own == {"pd": 1, "cq": 0, "qp": 0, "mr": 0}, own
# And the memory of each queue: of a completion queue the ring and the shadow area, of a queue pair one piece.
pds = [PD(context) for _ in range(3)]
cqs = [CQ(context, 16) for _ in range(5)]
qps = [queue_pair(pds[0], cqs[0]) for _ in range(4)]
mrs = [MR(pds[1], 12345 + n, ACCESS) for n in range(7)]
assert counts() == {"pd": 1 + 3, "cq": 5, "qp": 4, "mr": 7 + 2 * 5 + 4}, counts()
assert {one["lqpn"] for one in shown("qp")} == {qp.qp_num for qp in qps}
assert {one["mrlen"] for one in shown("mr")} >= {12345 + n for n in range(7)}
for one in qps + mrs + cqs + pds:
    one.close()
assert counts() == own, counts()
context.close()
assert not any(counts().values()), counts()
