"""Honest: adds up the products in another order than the reference.

class: control
problem: matmul
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return (b.T @ a.T).T.contiguous()
