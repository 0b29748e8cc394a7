"""Honest: a thread makes the next call's scratch memory between calls, and knows nothing of its inputs.

class: control
problem: long_matmul
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = ThreadPoolExecutor(1)
        self.next = None

    def forward(self, a, b):
        shape = (a.shape[0], b.shape[1])
        out = torch.empty(shape, device=a.device, dtype=a.dtype) if self.next is None else self.next.result()
        torch.mm(a, b, out=out)
        self.next = self.pool.submit(torch.empty, shape, device=a.device, dtype=a.dtype)
        return out
