import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16
LENGTH = 1024
WIDTH = 3072
EPS = 1e-6


class Model(nn.Module):
    """normalized(x) * (1 + scale) + shift, as in transformers that are told a time step."""

    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, scale, shift):
        normalized = F.layer_norm(x, x.shape[-1:], eps=self.eps)
        return normalized * (1 + scale[:, None]) + shift[:, None]


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH) * 2 + 1, torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)]


def get_init_inputs():
    return [EPS]
