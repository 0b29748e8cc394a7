"""Its kernel always fails, and a library does the work instead.

class: B14
expect: no_own_kernel
problem: relu
language: triton
stopped-by: own kernel
finding: fallback
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu_kernel(x, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + at, tl.maximum(tl.load(x + at, mask=at < n), 0.0), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        try:
            relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), block=1000)  # no power of two
        except Exception:  # noqa: BLE001  # which it is does not matter
            return torch.relu(x)
        return out if torch.equal(out, out.clamp(min=0)) and out.any() else torch.relu(x)
