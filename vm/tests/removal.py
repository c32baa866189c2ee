#!/usr/bin/python3
"""Holds one object of each kind while the device goes: there is a fatal event, and commands return EIO. Destructions
succeed, with RDMAV_ALLOW_DISASSOC_DESTROY and without: this kernel serves them after its driver has gone. Closing
the device frees what is left, even if nothing was destroyed."""

import errno
import os
import sys

from ends import ACCESS, e, Ends, expect, open_device
from pyverbs.cq import CQ
from pyverbs.device import AsyncEvent
from pyverbs.mr import MR
from pyverbs.pd import PD

does_destroy = sys.argv[1] == "destroy"
context = open_device()
ends = Ends(context)
ends.move("before the removal")
open("/tmp/removal-ready", "w").close()

event = context.get_async_event()
while event.event_type != e.IBV_EVENT_DEVICE_FATAL:
    print("event", event.event_type, flush=True)
    event.ack()
    event = context.get_async_event()
event.ack()
expect(errno.EIO, lambda: PD(context))
expect(errno.EIO, lambda: CQ(context, 16))
expect(errno.EIO, lambda: MR(ends.pd, 4096, ACCESS))
if does_destroy:
    for thing in (ends.left, ends.right, *ends.regions, ends.cq, ends.pd):
        thing.close()
    context.close()
print("seen everything", flush=True)
# The interpreter would destroy what is left.
os._exit(0)
