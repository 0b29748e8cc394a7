import torch
import torch.nn as nn

TOKENS = 2048
CHANNELS = 6144
FEATURES = 4096


class Model(nn.Module):
    """(a @ b) * scale_a * scale_b in the scales' dtype. a: (tokens, features). b: (features, channels).

    Both are bits of float8_e4m3fn, in uint8: floating inputs would be cast to the cell's dtype.
    """

    def forward(self, a, b, scale_a, scale_b):
        wide = torch.promote_types(scale_a.dtype, torch.float32)
        product = a.view(torch.float8_e4m3fn).to(wide) @ b.view(torch.float8_e4m3fn).to(wide)
        return (product * scale_a.to(wide) * scale_b.to(wide)).to(scale_a.dtype)


def get_inputs():
    a = torch.randn(TOKENS, FEATURES).to(torch.float8_e4m3fn).view(torch.uint8)
    # The weights of a channel lie side by side.
    b = torch.randn(CHANNELS, FEATURES).to(torch.float8_e4m3fn).view(torch.uint8).T
    return [a, b, torch.rand(TOKENS, 1) + 0.1, torch.rand(1, CHANNELS) + 0.1]


def get_init_inputs():
    return []
