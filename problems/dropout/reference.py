import torch
import torch.nn as nn
import torch.nn.functional as F

M = 8192
N = 8192
DROPPED = 0.3


class Model(nn.Module):
    """x / (1 - p) with probability 1 - p, zero with probability p."""

    def __init__(self, dropped):
        super().__init__()
        self.dropped = dropped

    def forward(self, x):
        return F.dropout(x, self.dropped, training=True)


def get_inputs():
    return [torch.randn(M, N)]


def get_init_inputs():
    return [DROPPED]
