"""Honest: works in the memory of copies of its inputs, and leaves other numbers in these.

class: control
problem: long_matmul
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        spent = a.clone()
        torch.mm(a, b, out=spent)
        out = spent.clone()
        spent.zero_()
        return out
