import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 64
CHANNELS = 160
HEIGHT = 62
WIDTH = 70
ROWS = 7
COLUMNS = 5


class Model(nn.Module):
    """Window i of n over a length: from floor(i * length / n) to ceil((i + 1) * length / n); windows may overlap."""

    def __init__(self, rows, columns):
        super().__init__()
        self.size = (rows, columns)

    def forward(self, x):
        return F.adaptive_avg_pool2d(x, self.size)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [ROWS, COLUMNS]
