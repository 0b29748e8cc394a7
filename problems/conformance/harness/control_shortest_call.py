"""Honest: does what the reference does and nothing else, in a call as short as a call can be.

class: control
problem: relu
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
