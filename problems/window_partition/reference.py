import torch
import torch.nn as nn

BATCH = 64
HEIGHT = 56
WIDTH = 63
CHANNELS = 96
WINDOW = 7
SHIFT = 3


class Model(nn.Module):
    """(windows, 49, CHANNELS) of images moved up and left by SHIFT; what leaves on one side comes in on the other."""

    def __init__(self, window, shift):
        super().__init__()
        self.window = window
        self.shift = shift

    def forward(self, x):
        batch, height, width, channels = x.shape
        side = self.window
        moved = x.roll((-self.shift, -self.shift), dims=(1, 2))
        parts = moved.view(batch, height // side, side, width // side, side, channels)
        return parts.transpose(2, 3).reshape(-1, side * side, channels)


def get_inputs():
    return [torch.randn(BATCH, HEIGHT, WIDTH, CHANNELS)]


def get_init_inputs():
    return [WINDOW, SHIFT]
