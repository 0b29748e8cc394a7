import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 80
CHANNELS = 200
LENGTH = 5000
EPS = 1e-5  # not less: float16 has to know it from zero


class Model(nn.Module):
    """x / max(norm, eps), the Euclidean norm being taken along the second dimension."""

    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return F.normalize(x, dim=1, eps=self.eps)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH) * (torch.rand(BATCH, 1, LENGTH) * 4 + 0.1)]


def get_init_inputs():
    return [EPS]
