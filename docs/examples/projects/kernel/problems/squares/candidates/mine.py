"""A first candidate: one program per row, which walks along it in blocks."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def squares_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        values = tl.load(x + row * columns + column, mask=column < columns, other=0.0).to(tl.float32)
        total += values * values
    tl.store(out + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    """Made and called as the reference's ``Model`` is."""

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        squares_kernel[(rows,)](x, out, columns, BLOCK=1024)
        return out
