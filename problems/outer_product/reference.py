import torch
import torch.nn as nn

BATCH = 16
M = 2000
N = 2400


class Model(nn.Module):
    """u[b, i] * v[b, j]."""

    def forward(self, u, v):
        return u.unsqueeze(-1) * v.unsqueeze(-2)


def get_inputs():
    return [torch.randn(BATCH, M), torch.randn(BATCH, N)]


def get_init_inputs():
    return []
