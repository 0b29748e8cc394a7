import torch
import torch.nn as nn

BATCH = 16
IN_CHANNELS = 48
OUT_CHANNELS = 32
HEIGHT = 80
WIDTH = 72


class Model(nn.Module):
    """4 x 4 transposed convolution, stride 2, padding 1, with bias; each output element sees 2 x 2 input elements."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.ConvTranspose2d(in_channels, out_channels, kernel_size=4, stride=2, padding=1)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, IN_CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [IN_CHANNELS, OUT_CHANNELS]
