import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32
CHANNELS = 96
HEIGHT = 56
WIDTH = 56
BLOCKS = 3


class Normalization(nn.Module):
    """Batch normalization with stored statistics, which are random as scale and shift are."""

    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels) / 2)
        self.register_buffer("mean", torch.randn(channels) / 4)
        self.register_buffer("variance", torch.rand(channels) + 0.5)

    def forward(self, x):
        return F.batch_norm(x, self.mean, self.variance, self.weight, self.bias)


class Block(nn.Module):
    """relu(x + normalized(conv(relu(normalized(conv(x))))))."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.norm1 = Normalization(channels)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.norm2 = Normalization(channels)
        for conv in (self.conv1, self.conv2):
            nn.init.normal_(conv.weight, std=(2 / (9 * channels)) ** 0.5)

    def forward(self, x):
        inner = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(inner)))


class Model(nn.Module):
    """Blocks of equal shape, one behind the other."""

    def __init__(self, channels, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(Block(channels) for _ in range(blocks))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, BLOCKS]
