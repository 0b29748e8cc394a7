import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def soft_maximum_kernel(x, temperatures, out, columns, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + column, mask=column < columns, other=float("-inf")).to(WIDE)
    temperature = tl.load(temperatures + row).to(WIDE)
    largest = tl.max(values, axis=0)
    powers = tl.exp((values - largest) / temperature)
    tl.store(out + row, largest + temperature * tl.log(tl.sum(powers, axis=0)))


class ModelNew(nn.Module):
    def forward(self, x, temperature):
        x, temperature = x.contiguous(), temperature.contiguous()
        rows, columns = x.shape
        out = torch.empty(rows, dtype=x.dtype, device=x.device)
        wide = tl.float64 if x.dtype == torch.float64 else tl.float32
        block = triton.next_power_of_2(columns)
        soft_maximum_kernel[(rows,)](x, temperature, out, columns, WIDE=wide, BLOCK=block, num_warps=8)
        return out
