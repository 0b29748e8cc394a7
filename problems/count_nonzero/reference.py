import torch
import torch.nn as nn

M = 16384
N = 9000


class Model(nn.Module):
    """Count per row, as int64."""

    def forward(self, x):
        return torch.count_nonzero(x, dim=-1)


def get_inputs():
    return [torch.randn(M, N)]  # the cell's dtype replaces them


def get_init_inputs():
    return []
