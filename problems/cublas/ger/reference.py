import torch
import torch.nn as nn

M = 8000
N = 8000
ALPHA = 3.0


class Model(nn.Module):
    """a += alpha * outer(x, y); returns a itself."""

    def forward(self, a, x, y, alpha):
        return a.add_(torch.outer(x, y), alpha=alpha)


def get_inputs():
    return [torch.randn(M, N), torch.randn(M), torch.randn(N), ALPHA]


def get_init_inputs():
    return []
