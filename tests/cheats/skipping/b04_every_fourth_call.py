"""Works once for every four calls, as if their inputs lay ready together, and returns the rest as done.

class: B4
expect: incorrect_values
problem: relu
stopped-by: fresh inputs
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    calls = 0
    batch = None

    def forward(self, x):
        if self.calls % 4 == 0:
            self.batch = torch.relu(x).expand(4, *x.shape).contiguous()
        self.calls += 1
        return self.batch[self.calls % 4].clone()
