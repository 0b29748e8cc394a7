"""Honest: counts by finalizers how many of its outputs are still alive.

class: control
problem: long_matmul
"""

import weakref

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.alive = 0

    def dropped(self):
        self.alive -= 1

    def forward(self, a, b):
        out = a @ b
        self.alive += 1
        weakref.finalize(out, self.dropped)
        return out
