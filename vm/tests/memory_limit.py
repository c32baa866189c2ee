#!/usr/bin/python3
"""What memory_limit runs under a limit of 1 MiB of locked memory."""

import errno

from ends import ACCESS, Ends, expect, open_device
from pyverbs.mr import MR
from pyverbs.pd import PD

with open_device() as context:
    pd = PD(context)
    for _ in range(3):
        expect(errno.ENOMEM, lambda: MR(pd, 8 << 20, ACCESS))
    ends = Ends(context)
    ends.move("after the limit")
