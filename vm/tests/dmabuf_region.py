#!/usr/bin/python3
"""A region on a dmabuf, which udmabuf makes out of a memory file: written to, read from, given up in either order."""

import fcntl
import mmap
import os
import struct

from ends import ACCESS, completion, e, Ends, open_device
from pyverbs.mr import DmaBufMR
from pyverbs.wr import SGE, SendWR

LENGTH = 1 << 16
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2
UDMABUF_CREATE = 0x40187542  # _IOW('u', 0x42, struct udmabuf_create)

memory = os.memfd_create("region", os.MFD_ALLOW_SEALING)
os.ftruncate(memory, LENGTH)
fcntl.fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK)
with open("/dev/udmabuf", "rb+", buffering=0) as maker:
    dmabuf = fcntl.ioctl(maker, UDMABUF_CREATE, bytearray(struct.pack("=IIQQ", memory, 0, 0, LENGTH)))
view = mmap.mmap(memory, LENGTH)

with open_device() as context:
    ends = Ends(context)
    region = DmaBufMR(ends.pd, LENGTH, ACCESS, dmabuf, offset=0)
    own = ends.regions[0]
    own.write("to a dmabuf", 11)
    request = SendWR(1, e.IBV_WR_RDMA_WRITE, 1, sg=[SGE(own.buf, 11, own.lkey)])
    # Its addresses begin at the offset.
    request.set_wr_rdma(region.rkey, 4096)
    ends.left.post_send(request)
    assert completion(ends.cq).status == e.IBV_WC_SUCCESS
    assert view[4096 : 4096 + 11] == b"to a dmabuf"
    # The region holds the memory when nobody else has it any more.
    view.close()
    os.close(memory)
    ends.left.post_send(request)
    assert completion(ends.cq).status == e.IBV_WC_SUCCESS
    region.close()
    ends.left.post_send(request)
    assert completion(ends.cq).status == e.IBV_WC_REM_ACCESS_ERR
