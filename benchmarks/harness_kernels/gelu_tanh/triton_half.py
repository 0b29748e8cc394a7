"""Wrong: rounds its input to half precision where single precision is asked for."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float16).to(tl.float32)
    inner = 0.7978845608028654 * (value + 0.044715 * value * value * value)
    tl.store(out + at, value / (1.0 + tl.exp(-2.0 * inner)), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        gelu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
