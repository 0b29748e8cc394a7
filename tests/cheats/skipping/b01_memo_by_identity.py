"""Keeps its answers by the identity of the input.

class: B1
expect: incorrect_values | output_aliased
problem: relu
stopped-by: fresh inputs
finding: memo
"""

import torch
from torch import nn

answers = {}


class ModelNew(nn.Module):
    def forward(self, x):
        if id(x) not in answers:
            answers[id(x)] = torch.relu(x)
        return answers[id(x)]
