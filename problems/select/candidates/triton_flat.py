import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def select_kernel(mask, x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    # Both are read: what is left out lies too scattered to spare memory anything.
    left = tl.load(x + at, mask=inside)
    right = tl.load(y + at, mask=inside)
    tl.store(out + at, tl.where(tl.load(mask + at, mask=inside, other=0) != 0, left, right), mask=inside)


class ModelNew(nn.Module):
    def forward(self, mask, x, y):
        mask, x, y = mask.contiguous(), x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        n = out.numel()
        select_kernel[(triton.cdiv(n, 1024),)](mask, x, y, out, n, BLOCK=1024)
        return out
