#!/usr/bin/python3
"""Memory that is registered and then unmapped stays the region's: writes go to pages nobody sees."""

import ctypes
import mmap

from ends import ACCESS, Ends, open_device
from pyverbs.mr import MR

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
LENGTH = 1 << 16
MAP_FIXED = 0x10

address = libc.mmap(None, LENGTH, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)


def regions(pd):
    return [MR(pd, LENGTH, ACCESS), MR(pd, LENGTH, ACCESS, address=address)]


with open_device() as context:
    ends = Ends(context, regions=regions)
    ends.move("mapped")
    assert libc.munmap(address, LENGTH) == 0
    # Something else at the same place must not see what arrives.
    again = libc.mmap(address, LENGTH, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED, -1, 0)
    assert again == address
    ends.regions[0].write("unmapped", 8)
    ends.write(8)
    assert ctypes.string_at(address, 8) == bytes(8)
