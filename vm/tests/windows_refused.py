#!/usr/bin/python3
"""This kernel has no memory windows before GEN3, and says so."""

import errno

from ends import e, Ends, expect, open_device
from pyverbs.mr import MW
from pyverbs.pd import PD

with open_device() as context:
    pd = PD(context)
    for kind in (e.IBV_MW_TYPE_1, e.IBV_MW_TYPE_2):
        expect(errno.EOPNOTSUPP, lambda: MW(pd, kind))
    Ends(context).move("without windows")
