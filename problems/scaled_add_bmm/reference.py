import torch
import torch.nn as nn

BATCH = 20
M = 800
N = 700
K = 600
ALPHA = 0.125
BETA = 1.5


class Model(nn.Module):
    """beta * c + alpha * a @ b; alpha and beta are plain numbers."""

    def forward(self, c, a, b, alpha, beta):
        return torch.baddbmm(c, a, b, beta=beta, alpha=alpha)


def get_inputs():
    return [torch.randn(BATCH, M, N), torch.randn(BATCH, M, K), torch.randn(BATCH, K, N), ALPHA, BETA]


def get_init_inputs():
    return []
