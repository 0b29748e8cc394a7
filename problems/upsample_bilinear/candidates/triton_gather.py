import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def upsample_kernel(x, out, n, height, width, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    column, row = at % (2 * width), at // (2 * width) % (2 * height)
    plane = x + at // (4 * width * height) * height * width
    # Output pixel i covers the source at (i + 1/2) / 2 - 1/2: a quarter before or behind a source pixel.
    y = tl.maximum(row.to(tl.float32) * 0.5 - 0.25, 0.0)
    z = tl.maximum(column.to(tl.float32) * 0.5 - 0.25, 0.0)
    top, left = y.to(tl.int32), z.to(tl.int32)
    below, right = tl.minimum(top + 1, height - 1), tl.minimum(left + 1, width - 1)
    down, along = y - top, z - left
    a = tl.load(plane + top * width + left, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(plane + top * width + right, mask=inside, other=0.0).to(tl.float32)
    c = tl.load(plane + below * width + left, mask=inside, other=0.0).to(tl.float32)
    d = tl.load(plane + below * width + right, mask=inside, other=0.0).to(tl.float32)
    upper, lower = a + (b - a) * along, c + (d - c) * along
    tl.store(out + at, upper + (lower - upper) * down, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        out = torch.empty(batch, channels, 2 * height, 2 * width, dtype=x.dtype, device=x.device)
        n = out.numel()
        upsample_kernel[(triton.cdiv(n, 256),)](x, out, n, height, width, BLOCK=256)
        return out
