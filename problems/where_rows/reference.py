import torch
import torch.nn as nn

M = 8000
N = 9000


class Model(nn.Module):
    """x[i, j] where condition[i, j], else row[j]."""

    def forward(self, condition, x, row):
        return torch.where(condition, x, row)


def get_inputs():
    return [torch.rand(M, N) < 0.6, torch.randn(M, N), torch.randn(N)]


def get_init_inputs():
    return []
