import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def normalize_kernel(
    x, out, channels, length, EPS: tl.constexpr, WIDE: tl.constexpr, CHANNELS: tl.constexpr, COLUMNS: tl.constexpr
):
    start = tl.program_id(0).to(tl.int64) * channels * length
    channel = tl.arange(0, CHANNELS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    # A vector's numbers lie apart; those of its neighbours lie beside them, and are read with them.
    inside = (channel < channels) & (column < length)
    at = start + channel * length + column
    values = tl.load(x + at, mask=inside, other=0.0).to(WIDE)
    norm = tl.maximum(tl.sqrt(tl.sum(values * values, axis=0)), EPS)
    tl.store(out + at, values / norm[None, :], mask=inside)


class ModelNew(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        batch, channels, length = x.shape
        wide = tl.float64 if x.dtype == torch.float64 else tl.float32
        block = triton.next_power_of_2(channels)
        normalize_kernel[(batch, triton.cdiv(length, 32))](
            x, out, channels, length, EPS=self.eps, WIDE=wide, CHANNELS=block, COLUMNS=32, num_warps=8
        )
        return out
