import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32
CHANNELS = 64
HEIGHT = 56
WIDTH = 50


class Model(nn.Module):
    """What max pooling with windows of 2 x 2 returned, values and indices, at twice the height and width."""

    def forward(self, values, indices):
        return F.max_unpool2d(values, indices, kernel_size=2)


def get_inputs():
    row = torch.arange(HEIGHT).view(HEIGHT, 1) * 2 + torch.randint(0, 2, (BATCH, CHANNELS, HEIGHT, WIDTH))
    column = torch.arange(WIDTH) * 2 + torch.randint(0, 2, (BATCH, CHANNELS, HEIGHT, WIDTH))
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH), row * (2 * WIDTH) + column]


def get_init_inputs():
    return []
