import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 8192
HIDDEN = 4096
EPS = 1e-5


class Model(nn.Module):
    """residual += x; x = residual / rms(residual) * weight. Returns (x, residual), the inputs themselves."""

    def forward(self, x, residual, weight, eps):
        residual.add_(x)
        x.copy_(F.rms_norm(residual, weight.shape, weight, eps))
        return x, residual


def get_inputs():
    return [torch.randn(TOKENS, HIDDEN), torch.randn(TOKENS, HIDDEN) * 2, torch.rand(HIDDEN) + 0.5, EPS]


def get_init_inputs():
    return []
