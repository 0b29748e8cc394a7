"""Works for as many calls as a verification may take, and for none after them.

class: B3
expect: incorrect_values | nonfinite
problem: relu
stopped-by: values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return torch.relu(x) if self.calls <= 12 else torch.zeros_like(x)
