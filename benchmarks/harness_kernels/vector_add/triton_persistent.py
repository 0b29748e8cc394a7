"""Right: a fixed number of programs, each of which adds every so many blocks."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), PROGRAMS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        inside = at < n
        tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        add_kernel[(1024,)](x, y, out, out.numel(), PROGRAMS=1024, BLOCK=2048)
        return out
