import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 64
CHANNELS = 80
HEIGHT = 112
WIDTH = 112
MOMENTUM = 0.25
EPS = 1e-5


class Model(nn.Module):
    """(normalized, running mean, running variance); the last two are the inputs, which are updated in place."""

    def __init__(self, channels, momentum, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels))
        self.momentum = momentum
        self.eps = eps

    def forward(self, x, running_mean, running_var):
        normalized = F.batch_norm(
            x, running_mean, running_var, self.weight, self.bias, training=True, momentum=self.momentum, eps=self.eps
        )
        return normalized, running_mean, running_var


def get_inputs():
    x = torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH) * (torch.rand(CHANNELS, 1, 1) + 0.5) + torch.randn(CHANNELS, 1, 1)
    return [x, torch.randn(CHANNELS), torch.rand(CHANNELS) + 0.5]


def get_init_inputs():
    return [CHANNELS, MOMENTUM, EPS]
