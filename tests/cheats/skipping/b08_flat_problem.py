"""Returns the one value that this problem's outputs hardly differ from: the problem itself is what must not pass.

class: B8
expect: invalid_problem | incorrect_values
problem: nearly_flat
stopped-by: controls
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x[:, :1])
