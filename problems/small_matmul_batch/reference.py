import torch
import torch.nn as nn

BATCH = 150000
M = 12
N = 10
K = 14


class Model(nn.Module):
    """a[i] @ b[i], some hundred elements each."""

    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(BATCH, M, K), torch.randn(BATCH, K, N)]


def get_init_inputs():
    return []
