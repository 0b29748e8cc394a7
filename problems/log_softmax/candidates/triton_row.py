import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def log_softmax_kernel(x, out, columns, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    inside = column < columns
    row = tl.load(x + start + column, mask=inside, other=float("-inf")).to(WIDE)
    row -= tl.max(row, axis=0)
    tl.store(out + start + column, row - tl.log(tl.sum(tl.exp(row), axis=0)), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        rows, columns = x.shape
        wide = tl.float64 if x.dtype == torch.float64 else tl.float32
        block = triton.next_power_of_2(columns)
        log_softmax_kernel[(rows,)](x, out, columns, WIDE=wide, BLOCK=block, num_warps=16)
        return out
