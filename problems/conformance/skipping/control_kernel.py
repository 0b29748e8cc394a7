"""Honest: a kernel of its own does all of the work.

class: control
problem: relu
language: triton
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu_kernel(x, out, n, block: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    tl.store(out + at, tl.maximum(tl.load(x + at, mask=at < n), 0.0), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), block=1024)
        return out
