import torch
import torch.nn as nn

N = 25000000


class Model(nn.Module):
    """Real and imaginary part of (a + bi) * (c + di)."""

    def forward(self, a, b, c, d):
        return a * c - b * d, a * d + b * c


def get_inputs():
    return [torch.randn(N), torch.randn(N), torch.randn(N), torch.randn(N)]


def get_init_inputs():
    return []
