import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def quantize_kernel(x, values, scales, columns, smallest, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    data = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    largest = tl.maximum(tl.max(tl.abs(data), axis=0), smallest)
    exponent = (largest.to(tl.int32, bitcast=True) >> 23) - 126  # largest < 2**exponent
    scale = ((exponent + 120) << 23).to(tl.float32, bitcast=True)
    inverse = ((134 - exponent) << 23).to(tl.float32, bitcast=True)
    # Adding 1.5 * 2**23 leaves no bits for fractions, so the sum is rounded to the nearest even integer.
    rounded = (data * inverse + 12582912.0) - 12582912.0
    clamped = tl.minimum(tl.maximum(rounded, -127.0), 127.0)
    tl.store(values + row * columns + column, clamped.to(tl.int8), mask=inside)
    tl.store(scales + row, scale)


class ModelNew(nn.Module):
    def __init__(self, smallest):
        super().__init__()
        self.smallest = smallest

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        values = torch.empty_like(x, dtype=torch.int8)
        scales = torch.empty(rows, 1, dtype=x.dtype, device=x.device)
        block = triton.next_power_of_2(columns)
        quantize_kernel[(rows,)](x, values, scales, columns, self.smallest, BLOCK=block, num_warps=8)
        return values, scales
