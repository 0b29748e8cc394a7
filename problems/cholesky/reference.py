import torch
import torch.nn as nn

BATCH = 1200
N = 96


class Model(nn.Module):
    """The lower triangular L with positive diagonal of L @ L.T = a, zeros above its diagonal."""

    def forward(self, a):
        return torch.linalg.cholesky_ex(a).L  # unlike cholesky, it does not wait to see whether a was definite


def get_inputs():
    x = torch.randn(BATCH, N, N)
    return [x @ x.transpose(1, 2) / N + torch.eye(N)]  # eigenvalues from 1 to 5


def get_init_inputs():
    return []
