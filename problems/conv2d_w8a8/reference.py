import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16
IN_CHANNELS = 64
OUT_CHANNELS = 64
HEIGHT = 112
WIDTH = 112


class Model(nn.Module):
    """3 x 3 convolution, stride 1, padding 1, without any rounding: what a quantised one is held against."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        # Output channels differ in size by up to a thousand: one scale for all leaves nothing of the small ones.
        sizes = 1000 ** (torch.rand(out_channels, 1, 1, 1) - 1)
        self.weight = nn.Parameter(torch.randn(out_channels, in_channels, 3, 3) * sizes / in_channels**0.5)

    def forward(self, x):
        return F.conv2d(x, self.weight, padding=1)


def get_inputs():
    return [torch.randn(BATCH, IN_CHANNELS, HEIGHT, WIDTH) * 1000 ** torch.rand(BATCH, 1, 1, 1)]


def get_init_inputs():
    return [IN_CHANNELS, OUT_CHANNELS]
