import torch
import torch.nn as nn

BATCH = 16
M = 1024
N = 1024
K = 1024


class Model(nn.Module):
    """x @ w.T for each pair of the batch without any rounding: what a quantised product is held against."""

    def forward(self, x, w):
        return torch.bmm(x, w.transpose(1, 2))


def get_inputs():
    # Rows differ in size by up to a thousand: one scale for a matrix leaves nothing of the small ones.
    rows = 1000 ** torch.rand(BATCH, M, 1) / K**0.5
    channels = 1000 ** (torch.rand(N, 1) - 1)
    return [torch.randn(BATCH, M, K) * rows, torch.randn(BATCH, N, K) * channels]


def get_init_inputs():
    return []
