import torch
import torch.nn as nn

BATCH = 150000
N = 8


class Model(nn.Module):
    """One inverse per matrix."""

    def forward(self, a):
        return torch.linalg.inv_ex(a).inverse  # unlike inv, it does not wait to see whether there is one


def get_inputs():
    return [torch.randn(BATCH, N, N) * (0.4 / N**0.5) + 2 * torch.eye(N)]  # singular values from about 1 to 3


def get_init_inputs():
    return []
