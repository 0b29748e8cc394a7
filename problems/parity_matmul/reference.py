import torch
import torch.nn as nn

M = 3600
N = 3200
K = 3600


class Model(nn.Module):
    """Whether a row of a and a column of b are both true at an odd number of places. Sums in float32 are exact."""

    def forward(self, a, b):
        return (a.float() @ b.float()).remainder(2).bool()


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]  # the cell's dtype replaces them


def get_init_inputs():
    return []
