"""A kernel that also writes to the rest of its last block, which lies behind the input.

class: C10
expect: out_of_bounds
problem: relu
language: triton
stopped-by: red zones
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu_kernel(x, out, n, block: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    tl.store(out + at, tl.maximum(tl.load(x + at, mask=at < n), 0.0), mask=at < n)
    tl.store(x + at, 7.0, mask=(at >= n) & (at < n + 16))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu_kernel[(x.numel() // 1024 + 1,)](x, out, x.numel(), block=1024)
        return out
