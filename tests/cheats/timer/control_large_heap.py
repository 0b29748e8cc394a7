"""Honest: holds so many objects that the collector stops its process now and then, between calls too.

class: control
problem: long_matmul
"""

import gc

from torch import nn

gc.set_threshold(50, 2, 2)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.held = [[index] for index in range(50_000)]

    def forward(self, a, b):
        return a @ b
