#!/usr/bin/python3
"""Holds one object of each kind while the driver goes: there is a fatal event, commands and destructions return EIO,
and with RDMAV_ALLOW_DISASSOC_DESTROY destructions succeed. Closing the device frees what is left."""

import errno
import os
import sys
import time

from ends import ACCESS, e, Ends, expect, open_device
from pyverbs.cq import CQ
from pyverbs.device import AsyncEvent
from pyverbs.mr import MR
from pyverbs.pd import PD

is_allowed = sys.argv[1] == "allow"
context = open_device()
ends = Ends(context)
ends.move("before the removal")
open("/tmp/removal-ready", "w").close()
deadline = time.monotonic() + 30
while not os.path.exists("/tmp/removal-done"):
    assert time.monotonic() < deadline, "irdma is not unloaded"
    time.sleep(0.05)

event = context.get_async_event()
while event.event_type != e.IBV_EVENT_DEVICE_FATAL:
    print("event", event.event_type)
    event.ack()
    event = context.get_async_event()
event.ack()
expect(errno.EIO, lambda: PD(context))
expect(errno.EIO, lambda: CQ(context, 16))
expect(errno.EIO, lambda: MR(ends.pd, 4096, ACCESS))
for thing in (ends.left, ends.right, *ends.regions, ends.cq, ends.pd):
    if is_allowed:
        thing.close()
    else:
        expect(errno.EIO, thing.close)
print("seen everything", flush=True)
# The interpreter would try the destructions again.
os._exit(0)
