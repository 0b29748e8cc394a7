import torch
import torch.nn as nn

TOKENS = 8192
HIDDEN = 8192


class Model(nn.Module):
    """round(x / scale), no less than -128 and no more than 127, as int8; scale is one number."""

    def forward(self, x, scale):
        wide = torch.promote_types(x.dtype, torch.float32)
        return torch.round(x.to(wide) / scale.to(wide)).clamp(-128, 127).to(torch.int8)


def get_inputs():
    # Numbers of 8 bits stay what they are in both dtypes. Those near the middle between two steps become zeros: no two
    # implementations agree on them. One in a hundred is beyond 8 bits.
    scale = (torch.rand(1) + 0.1).bfloat16().to(torch.get_default_dtype())
    x = (torch.randn(TOKENS, HIDDEN) * (50 * scale)).bfloat16().to(scale.dtype)
    return [torch.where(((x / scale).frac().abs() - 0.5).abs() < 0.01, 0.0, x), scale]


def get_init_inputs():
    return []
