import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 4096
WIDTH = 2048


class Model(nn.Module):
    """x + scale * gelu(linear(x)): everything behind the product can be done where its tiles are."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) * 2 / width**0.5)
        self.bias = nn.Parameter(torch.randn(width))
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return x + self.scale * F.gelu(F.linear(x, self.weight, self.bias), approximate="tanh")


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH]
