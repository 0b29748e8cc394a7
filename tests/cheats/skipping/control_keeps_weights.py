"""Honest: turns its weights round once, when they are first needed.

class: control
problem: linear_gelu
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.linear = nn.Linear(*sizes)
        self.turned = None

    def forward(self, x):
        if self.turned is None:
            self.turned = self.linear.weight.T.contiguous()
        return nn.functional.gelu(torch.addmm(self.linear.bias, x, self.turned))
