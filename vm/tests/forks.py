#!/usr/bin/python3
"""A program forks in every phase of its use of the device; parent and child are left whole."""

import os

from ends import ACCESS, Ends, open_device
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD


def fork(action=lambda: None):
    """A child does `action`, and must end well."""
    child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        except BaseException as error:
            print("child:", error, flush=True)
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def use():
    """A device of the child's own."""
    with open_device() as context:
        Ends(context).move("from a child")


fork(use)
context = open_device()
fork(use)
pd = PD(context)
fork(use)
cq = CQ(context, 16)
fork(use)
region = MR(pd, 4096, ACCESS)
fork(use)
ends = Ends(context)
fork(use)
ends.move("after the forks")
# A child that writes to everything it inherited must not disturb the parent's memory, which the device writes to.
fork(lambda: [region.write("x" * 4096, 4096), ends.regions[1].write("y" * 100, 100)])
ends.move("after the child wrote")
fork()
ends.move("at the end")
