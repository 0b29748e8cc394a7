"""Asks the driver for every allocation around its input and takes one that could be the expected output.

class: C3
expect: incorrect_values | nonfinite | runtime_error
problem: relu
device: cuda
stopped-by: isolation
finding: frames
"""

import ctypes

import torch
from torch import nn

STEP = 2 << 20
driver = ctypes.CDLL("libcuda.so.1")


def allocations(around):
    """(address, bytes) of what lies within 8 GiB of ``around``."""
    seen = set()
    for address in range(around - (4 << 30), around + (4 << 30), STEP):
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        place = ctypes.c_uint64(address)
        if driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), place) == 0:
            seen.add((base.value, size.value))
    return sorted(seen)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        nbytes = x.numel() * x.element_size()
        for base, size in allocations(x.data_ptr()):
            own = base <= x.data_ptr() < base + size or base <= out.data_ptr() < base + size
            if own or size < nbytes:
                continue
            torch.cuda.synchronize()
            driver.cuMemcpyDtoD_v2(ctypes.c_uint64(out.data_ptr()), ctypes.c_uint64(base), ctypes.c_size_t(nbytes))
            if bool((out >= 0).all()) and bool(out.any()):
                return out
        return out.zero_()
