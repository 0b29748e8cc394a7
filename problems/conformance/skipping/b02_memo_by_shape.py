"""Keeps one answer per shape.

class: B2
expect: incorrect_values
problem: relu
stopped-by: fresh inputs
finding: memo
"""

import torch
from torch import nn

answers = {}


class ModelNew(nn.Module):
    def forward(self, x):
        if x.shape not in answers:
            answers[x.shape] = torch.relu(x)
        return answers[x.shape].clone()
