import torch
import torch.nn as nn

FIRST = 2500
SECOND = 300
THIRD = 4100
FOURTH = 1100
N = 2000
K = 1500


class Model(nn.Module):
    """One product per pair of a list of matrices and a stack of weights."""

    def forward(self, parts, weights):
        return tuple(part @ weight for part, weight in zip(parts, weights))


def get_inputs():
    parts = [torch.randn(rows, K) for rows in (FIRST, SECOND, THIRD, FOURTH)]
    return [parts, torch.randn(4, K, N)]


def get_init_inputs():
    return []
