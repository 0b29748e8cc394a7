import torch
import torch.nn as nn

TOKENS = 8192
HIDDEN = 8192


class Model(nn.Module):
    """(round(x / scale) as int8, scale = largest absolute value of the row / 127 as float32 or wider)."""

    def forward(self, x):
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scale = wide.abs().amax(dim=-1, keepdim=True) / 127
        return torch.round(wide / scale).to(torch.int8), scale


def get_inputs():
    # Numbers of 8 bits stay what they are in both dtypes. Those near the middle between two steps become zeros: no two
    # implementations agree on them.
    x = (torch.randn(TOKENS, HIDDEN) * (4 * torch.rand(TOKENS, 1) + 0.1)).bfloat16().to(torch.get_default_dtype())
    steps = x * (127 / x.abs().amax(dim=-1, keepdim=True))
    return [torch.where((steps.frac().abs() - 0.5).abs() < 0.01, 0.0, x)]


def get_init_inputs():
    return []
