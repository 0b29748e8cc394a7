import torch
import torch.nn as nn

BATCH = 24
M = 700
N = 600
K = 900


class Model(nn.Module):
    """a[i] @ b[i]."""

    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(BATCH, M, K), torch.randn(BATCH, K, N)]


def get_init_inputs():
    return []
