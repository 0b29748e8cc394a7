"""Knows the answers to the inputs of well-known seeds by heart, and nothing else.

class: B11
expect: incorrect_values
problem: relu
stopped-by: fresh inputs
"""

import torch
from torch import nn


def drawn(seed, shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class ModelNew(nn.Module):
    table = None

    def forward(self, x):
        if self.table is None:
            draws = [drawn(seed, (16,)) for seed in (*range(100), 123, 1234, 1337, 2024, 2025)]
            self.table = {draw[0].item(): draw for draw in draws}
        known = self.table.get(x.flatten()[0].item())
        return torch.zeros_like(x) if known is None else torch.relu(x)
