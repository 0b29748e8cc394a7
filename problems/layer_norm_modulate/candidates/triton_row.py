import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def modulated_norm_kernel(x, scale, shift, out, length, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    values = tl.load(x + row * width + column, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, values - tl.sum(values, axis=0) / width, 0.0)
    variance = tl.sum(centred * centred, axis=0) / width
    own = (row // length) * width + column  # one scale and one shift for all tokens of a sample
    factor = 1.0 + tl.load(scale + own, mask=inside, other=0.0).to(tl.float32)
    added = tl.load(shift + own, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, centred / tl.sqrt(variance + eps) * factor + added, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, scale, shift):
        x, scale, shift = x.contiguous(), scale.contiguous(), shift.contiguous()
        out = torch.empty_like(x)
        batch, length, width = x.shape
        block = triton.next_power_of_2(width)
        modulated_norm_kernel[(batch * length,)](
            x, scale, shift, out, length, width, self.eps, BLOCK=block, num_warps=8
        )
        return out
