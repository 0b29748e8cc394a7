import torch
import torch.nn as nn

TOKENS = 2048
CHANNELS = 6144
FEATURES = 4096


class Model(nn.Module):
    """(a @ b) * scale_a * scale_b in the scales' dtype. a: (tokens, features), int8. b: (features, channels), int8.

    The product is taken in floating point, since torch has none of integers on a GPU.
    """

    def forward(self, a, b, scale_a, scale_b):
        wide = torch.promote_types(scale_a.dtype, torch.float32)
        return ((a.to(wide) @ b.to(wide)) * scale_a.to(wide) * scale_b.to(wide)).to(scale_a.dtype)


def get_inputs():
    a = torch.randint(-127, 128, (TOKENS, FEATURES), dtype=torch.int8)
    # The weights of a channel lie side by side.
    b = torch.randint(-127, 128, (CHANNELS, FEATURES), dtype=torch.int8).T
    return [a, b, 0.02 * torch.rand(TOKENS, 1) + 0.001, 0.02 * torch.rand(1, CHANNELS) + 0.001]


def get_init_inputs():
    return []
