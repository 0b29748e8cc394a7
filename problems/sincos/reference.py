import torch
import torch.nn as nn

N = 50000000


class Model(nn.Module):
    """(sin(x), cos(x)), x in radians; angles are so large that whole turns have to be taken off with care."""

    def forward(self, x):
        return torch.sin(x), torch.cos(x)


def get_inputs():
    return [torch.randn(N) * 100]


def get_init_inputs():
    return []
