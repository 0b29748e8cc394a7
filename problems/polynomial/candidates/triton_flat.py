import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def polynomial_kernel(x, out, n, c6, c5, c4, c3, c2, c1, c0, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside, other=0.0).to(WIDE)
    result = (((((c6 * value + c5) * value + c4) * value + c3) * value + c2) * value + c1) * value + c0
    tl.store(out + at, result, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, coefficients):
        super().__init__()
        # Triton takes plain numbers as float32, which these, being small and whole, do not mind.
        self.coefficients = [float(coefficient) for coefficient in coefficients]

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        wide = tl.float64 if x.dtype == torch.float64 else tl.float32
        polynomial_kernel[(triton.cdiv(n, 1024),)](x, out, n, *self.coefficients, WIDE=wide, BLOCK=1024)
        return out
