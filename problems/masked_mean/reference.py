import torch
import torch.nn as nn

M = 16384
N = 8000


class Model(nn.Module):
    """Mean of x where the mask is true, row by row; zero where it is true nowhere."""

    def forward(self, x, mask):
        return torch.where(mask, x, 0).sum(dim=-1) / mask.sum(dim=-1).clamp_min(1)


def get_inputs():
    density = torch.rand(M, 1) * 0.7 + 0.3
    density[0] = 0  # a row of which nothing counts
    return [torch.randn(M, N), torch.rand(M, N) < density]


def get_init_inputs():
    return []
