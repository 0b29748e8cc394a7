import torch
import torch.nn as nn
import torch.nn.functional as F

M = 8192
N = 6000
EPS = 1e-5


class Model(nn.Module):
    """Layer normalization over the last dimension; scale and shift are random, so that forgetting them shows."""

    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features))
        self.eps = eps

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


def get_inputs():
    return [torch.randn(M, N) * 2 + 1]


def get_init_inputs():
    return [N, EPS]
