"""Is right for numbers that a normal distribution gives, and wrong beyond six.

class: B10
expect: incorrect_values
problem: relu
stopped-by: values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0, max=6)
