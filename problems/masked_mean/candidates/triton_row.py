import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def masked_mean_kernel(x, mask, out, columns, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    counts = (tl.load(mask + row * columns + column, mask=inside, other=0) != 0) & inside
    values = tl.load(x + row * columns + column, mask=counts, other=0.0).to(WIDE)
    number = tl.maximum(tl.sum(counts.to(tl.int32), axis=0), 1)
    tl.store(out + row, tl.sum(values, axis=0) / number)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        x, mask = x.contiguous(), mask.contiguous()
        rows, columns = x.shape
        out = torch.empty(rows, dtype=x.dtype, device=x.device)
        wide = tl.float64 if x.dtype == torch.float64 else tl.float32
        block = triton.next_power_of_2(columns)
        masked_mean_kernel[(rows,)](x, mask, out, columns, WIDE=wide, BLOCK=block, num_warps=8)
        return out
