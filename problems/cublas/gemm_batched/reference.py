import torch
import torch.nn as nn

BATCH = 96
LEFT = 60
RIGHT = 70
M = 400
N = 448
K = 384
ALPHA = 3.0
BETA = -2.0


class Model(nn.Module):
    """c[i] = alpha * a[left[i]] @ b[right[i]] + beta * c[i]; returns c itself."""

    def forward(self, a, b, left, right, c, alpha, beta):
        return c.mul_(beta).add_(torch.bmm(a[left], b[right]), alpha=alpha)


def get_inputs():
    left, right = torch.randint(LEFT, (BATCH,)), torch.randint(RIGHT, (BATCH,))
    c = torch.randn(BATCH, M, N)
    return [torch.randn(LEFT, M, K), torch.randn(RIGHT, K, N), left, right, c, ALPHA, BETA]


def get_init_inputs():
    return []
