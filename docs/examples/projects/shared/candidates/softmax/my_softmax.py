"""A first candidate: softmax over the rows of a matrix, one program per row."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    inside = column < columns  # BLOCK is a power of two, a row is not
    row = tl.load(x + start + column, mask=inside, other=float("-inf")).to(tl.float32)
    row = tl.exp(row - tl.max(row, axis=0))
    tl.store(out + start + column, row / tl.sum(row, axis=0), mask=inside)


class ModelNew(nn.Module):
    """Made and called as the reference's ``Model`` is."""

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        rows, columns = x.shape
        softmax_kernel[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out
