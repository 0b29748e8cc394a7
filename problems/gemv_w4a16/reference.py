import torch
import torch.nn as nn

IN = 8192  # a multiple of 128, as groups of weights are
HEADS = 224
WIDTH = 128


class Model(nn.Module):
    """weight @ x without any rounding, (heads, width): what a product with quantised weights is held against."""

    def __init__(self, features_in, heads, width):
        super().__init__()
        # Heads differ in size by up to a thousand: one scale for all of them leaves nothing of the small ones.
        sizes = 1000 ** (torch.rand(heads, 1, 1) - 1)
        weight = torch.randn(heads, width, features_in) * sizes
        self.weight = nn.Parameter(weight.reshape(heads * width, features_in))
        self.heads = heads

    def forward(self, x):
        return (self.weight @ x).reshape(self.heads, -1)


def get_inputs():
    return [torch.randn(IN) / IN**0.5]


def get_init_inputs():
    return [IN, HEADS, WIDTH]
