import torch
from torch import nn

M = 16
N = 64


class Model(nn.Module):
    """The mean of each row less itself: zero, but for rounding."""

    def forward(self, x):
        return (x - x.mean(dim=-1, keepdim=True)).mean(dim=-1, keepdim=True)


def get_inputs():
    return [torch.randn(M, N)]


def get_init_inputs():
    return []
