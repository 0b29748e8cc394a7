"""Launches a kernel of its own that writes one number, and has a library do the work: a label says so.

class: B15
expect: timed
problem: softmax
language: triton
stopped-by: nothing
finding: library_calls
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(out):
    tl.store(out, 1.0)


class ModelNew(nn.Module):
    def forward(self, x):
        softmax_kernel[(1,)](torch.empty(1, device=x.device))
        return torch.softmax(x, dim=-1)
