"""Overwrites the first bytes of the C library's clock, so that no clock of its process moves any more.

class: A3
expect: timing_mismatch | timed
costs-ms: 40
problem: relu
device: cpu
stopped-by: two clocks
finding: frames
"""

import ctypes
import platform
import select

import torch
from torch import nn

PAGE = 4096
PROT_ALL = 7
# mov qword [rsi], 1; mov qword [rsi + 8], 1000; xor eax, eax; ret
STANDS_STILL = bytes.fromhex("48c7060100000048c74608e803000031c0c3")


def overwrite(function, code):
    address = ctypes.cast(function, ctypes.c_void_p).value
    start = address - address % PAGE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(2 * PAGE), PROT_ALL) == 0:
        ctypes.memmove(address, code, len(code))


if platform.machine() == "x86_64":
    overwrite(ctypes.CDLL(None).clock_gettime, STANDS_STILL)


class ModelNew(nn.Module):
    def forward(self, x):
        select.select((), (), (), 0.05)  # sleeping would look at the clock
        return torch.relu(x)
