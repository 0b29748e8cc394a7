import torch
import torch.nn as nn

N = 50000000
ALPHA = 3.0


class Model(nn.Module):
    """y += alpha * x; returns y itself."""

    def forward(self, x, y, alpha):
        return y.add_(x, alpha=alpha)


def get_inputs():
    return [torch.randn(N), torch.randn(N), ALPHA]


def get_init_inputs():
    return []
