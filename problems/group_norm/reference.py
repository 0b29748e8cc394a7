import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 64
GROUPS = 12
GROUP_SIZE = 8  # channels
HEIGHT = 100
WIDTH = 100
EPS = 1e-5


class Model(nn.Module):
    """Each sample's channels are normalized in groups; scale and shift are a channel's own."""

    def __init__(self, groups, channels, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels))
        self.groups = groups
        self.eps = eps

    def forward(self, x):
        return F.group_norm(x, self.groups, self.weight, self.bias, self.eps)


def get_inputs():
    sizes = torch.rand(BATCH, GROUPS * GROUP_SIZE, 1, 1) + 0.5
    return [torch.randn(BATCH, GROUPS * GROUP_SIZE, HEIGHT, WIDTH) * sizes + 1]


def get_init_inputs():
    return [GROUPS, GROUPS * GROUP_SIZE, EPS]
