import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32
CHANNELS = 320
GROUPS = 32
HEIGHT = 64
WIDTH = 64
EPS = 1e-5


class Model(nn.Module):
    """silu(group_norm(x)); scale and shift are random, so that forgetting them shows."""

    def __init__(self, channels, groups, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels))
        self.groups = groups
        self.eps = eps

    def forward(self, x):
        return F.silu(F.group_norm(x, self.groups, self.weight, self.bias, self.eps))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH) * 2 + 1]


def get_init_inputs():
    return [CHANNELS, GROUPS, EPS]
