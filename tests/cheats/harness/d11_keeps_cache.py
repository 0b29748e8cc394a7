"""Sets as much of the L2 cache aside for itself as the driver allows: inputs are new, so nothing of them is in it.

class: D11
expect: timed
problem: relu
device: cuda
stopped-by: nothing
"""

import ctypes
from contextlib import suppress

import torch
from torch import nn

LIMIT_PERSISTING_L2 = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE

with suppress(OSError):
    ctypes.CDLL("libcuda.so.1").cuCtxSetLimit(LIMIT_PERSISTING_L2, ctypes.c_size_t(64 << 20))


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
