"""Wrong: adds the sums of earlier blocks of its row without waiting until other programs have written them."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cumsum_kernel(x, out, sums, columns, blocks, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    row, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    column = block * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    values = tl.load(x + row * columns + column, mask=inside, other=0.0)
    tl.store(sums + row * blocks + block, tl.sum(values, axis=0))
    earlier = tl.arange(0, BLOCKS)
    before = tl.sum(tl.load(sums + row * blocks + earlier, mask=earlier < block, other=0.0), axis=0)
    tl.store(out + row * columns + column, tl.cumsum(values, axis=0) + before, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        blocks = triton.cdiv(columns, 256)
        out, sums = torch.empty_like(x), torch.empty(rows, blocks, dtype=x.dtype, device=x.device)
        size = triton.next_power_of_2(blocks)
        cumsum_kernel[(blocks, rows)](x, out, sums, columns, blocks, BLOCK=256, BLOCKS=size)
        return out
