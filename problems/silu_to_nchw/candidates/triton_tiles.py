import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x, out, channels, pixels, WIDE: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr):
    start = tl.program_id(2).to(tl.int64) * channels * pixels
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)[:, None]
    inside = (channel < channels) & (pixel < pixels)
    value = tl.load(x + start + pixel * channels + channel, mask=inside, other=0.0).to(WIDE)
    # Turned within the tile, so that what is written lies side by side as what was read did.
    turned = tl.trans((value / (1.0 + tl.exp(-value))).to(out.dtype.element_ty))
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)[:, None]
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)[None, :]
    tl.store(out + start + channel * pixels + pixel, turned, mask=(channel < channels) & (pixel < pixels))


class ModelNew(nn.Module):
    def forward(self, x):
        batch, channels, height, width = x.shape
        rows = x.permute(0, 2, 3, 1).contiguous()  # no copy where the channels lie last already
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        pixels = height * width
        wide = tl.float64 if x.dtype == torch.float64 else tl.float32
        silu_kernel[(triton.cdiv(channels, 32), triton.cdiv(pixels, 64), batch)](
            rows, out, channels, pixels, WIDE=wide, CHANNELS=32, PIXELS=64
        )
        return out
