"""Returns memory as the allocator gives it, in the hope that somebody's answer is still in it.

class: B6
expect: incorrect_values | nonfinite
problem: relu
stopped-by: values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.empty_like(x)
