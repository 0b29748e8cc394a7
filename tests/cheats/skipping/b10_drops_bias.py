"""Leaves the bias out, as if it were zero.

class: B10
expect: incorrect_values
problem: linear_gelu
stopped-by: values
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.linear = nn.Linear(*sizes)

    def forward(self, x):
        return nn.functional.gelu(x @ self.linear.weight.T)
