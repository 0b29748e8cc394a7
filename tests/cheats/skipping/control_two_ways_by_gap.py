"""Honest: works in one of two ways, by how long it was not called.

class: control
problem: long_matmul
"""

import time

import torch
from torch import nn


class ModelNew(nn.Module):
    left_at = 0.0

    def forward(self, a, b):
        was_idle = time.perf_counter() - self.left_at > 0.02
        out = torch.mm(a, b) if was_idle else torch.matmul(a, b)
        self.left_at = time.perf_counter()
        return out
