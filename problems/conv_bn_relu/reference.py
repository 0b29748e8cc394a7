import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32
IN_CHANNELS = 64
OUT_CHANNELS = 128
HEIGHT = 56
WIDTH = 56
EPS = 1e-5


class Model(nn.Module):
    """relu((conv(x) - mean) / sqrt(variance + eps) * weight + bias); mean and variance are stored, not the batch's."""

    def __init__(self, in_channels, out_channels, eps):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False)
        self.weight = nn.Parameter(torch.rand(out_channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(out_channels) / 2)
        self.register_buffer("mean", torch.randn(out_channels) / 4)
        self.register_buffer("variance", torch.rand(out_channels) / 2 + 0.1)
        self.eps = eps

    def forward(self, x):
        convolved = self.conv(x)
        return F.relu(F.batch_norm(convolved, self.mean, self.variance, self.weight, self.bias, eps=self.eps))


def get_inputs():
    return [torch.randn(BATCH, IN_CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [IN_CHANNELS, OUT_CHANNELS, EPS]
