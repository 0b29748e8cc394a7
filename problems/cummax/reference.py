import torch
import torch.nn as nn

M = 4096
N = 6000


class Model(nn.Module):
    """(largest element so far, its index) along the last dimension; of several, the index of the last."""

    def forward(self, x):
        values, indices = torch.cummax(x, dim=-1)
        return values, indices


def get_inputs():
    # Rows that rise: a maximum of equally likely numbers would be met early, and never move again.
    return [torch.randn(M, N) + torch.arange(N) * (8 / N)]


def get_init_inputs():
    return []
