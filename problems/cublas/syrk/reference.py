import torch
import torch.nn as nn

N = 4096
K = 3072
ALPHA = 3.0
BETA = -2.0


class Model(nn.Module):
    """c = alpha * a @ a.T + beta * c on and below its diagonal; returns c itself."""

    def forward(self, a, c, alpha, beta):
        return c.copy_((alpha * (a @ a.T) + beta * c).tril() + c.triu(1))


def get_inputs():
    return [torch.randn(N, K), torch.randn(N, N), ALPHA, BETA]


def get_init_inputs():
    return []
