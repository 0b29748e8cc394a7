"""Returns its input.

class: B7
expect: output_aliased | incorrect_values
problem: relu
stopped-by: aliasing
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x
