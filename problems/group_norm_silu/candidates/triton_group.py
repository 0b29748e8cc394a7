import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def group_norm_silu_kernel(x, weight, bias, out, groups, group_size, pixels, eps, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64)  # which group of which sample
    elements = group_size * pixels
    start = place * elements
    at = tl.arange(0, BLOCK)
    # A mean and a sum of squared deviations in each lane, so that nothing large is subtracted from its like.
    count = tl.zeros((BLOCK,), dtype=tl.float32)
    mean = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, elements, BLOCK):
        inside = first + at < elements
        value = tl.load(x + start + first + at, mask=inside, other=0.0).to(tl.float32)
        count += tl.where(inside, 1.0, 0.0)
        apart = tl.where(inside, value - mean, 0.0)
        mean += apart / tl.maximum(count, 1.0)
        squares += tl.where(inside, apart * (value - mean), 0.0)
    whole_mean = tl.sum(count * mean, axis=0) / elements
    between = count * (mean - whole_mean) * (mean - whole_mean)
    reciprocal = 1.0 / tl.sqrt(tl.sum(squares + between, axis=0) / elements + eps)
    # The second look at the group finds it in the cache.
    for first in range(0, elements, BLOCK):
        inside = first + at < elements
        value = tl.load(x + start + first + at, mask=inside, other=0.0).to(tl.float32)
        channel = (place % groups) * group_size + (first + at) // pixels
        scale = tl.load(weight + channel, mask=inside, other=0.0).to(tl.float32)
        shift = tl.load(bias + channel, mask=inside, other=0.0).to(tl.float32)
        normalized = (value - whole_mean) * reciprocal * scale + shift
        tl.store(out + start + first + at, normalized / (1.0 + tl.exp(-normalized)), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, channels, groups, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels))
        self.bias = nn.Parameter(torch.empty(channels))
        self.groups = groups
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        batch, channels, height, width = x.shape
        sizes = (self.groups, channels // self.groups, height * width)
        group_norm_silu_kernel[(batch * self.groups,)](
            x, self.weight, self.bias, out, *sizes, self.eps, BLOCK=2048, num_warps=8
        )
        return out
