import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16
IN_CHANNELS = 64
OUT_CHANNELS = 96
HEIGHT = 96
WIDTH = 80
GROUPS = 4


class Model(nn.Module):
    """Four groups of channels, dilation (2, 3) and as much padding: height and width stay what they are."""

    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x, weight):
        return F.conv2d(x, weight, padding=(2, 3), dilation=(2, 3), groups=self.groups)


def get_inputs():
    weight = torch.randn(OUT_CHANNELS, IN_CHANNELS // GROUPS, 3, 3) * 0.1
    return [torch.randn(BATCH, IN_CHANNELS, HEIGHT, WIDTH), weight]


def get_init_inputs():
    return [GROUPS]
