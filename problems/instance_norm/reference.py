import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32
CHANNELS = 60
HEIGHT = 180
WIDTH = 190
EPS = 1e-5


class Model(nn.Module):
    """(x - mean) / sqrt(variance + eps) over height and width, without parameters."""

    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return F.instance_norm(x, eps=self.eps)


def get_inputs():
    # Long tails: the variance of part of an image is not that of the image.
    sizes = torch.rand(BATCH, CHANNELS, 1, 1) + 0.5
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH) ** 3 * sizes + torch.randn(BATCH, CHANNELS, 1, 1)]


def get_init_inputs():
    return [EPS]
