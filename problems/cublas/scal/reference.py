import torch
import torch.nn as nn

N = 50000000
ALPHA = -3.0


class Model(nn.Module):
    """x *= alpha; returns x itself."""

    def forward(self, x, alpha):
        return x.mul_(alpha)


def get_inputs():
    return [torch.randn(N), ALPHA]


def get_init_inputs():
    return []
