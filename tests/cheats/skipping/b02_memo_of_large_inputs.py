"""Samples inputs so large that they are not all drawn anew for each call, and answers from memory on a match.

class: B2
expect: incorrect_values
problem: large_relu
device: cuda
stopped-by: fresh inputs
"""

import torch
from torch import nn

answers = {}


class ModelNew(nn.Module):
    def forward(self, x):
        key = tuple(x.flatten()[:: x.numel() // 16].tolist())
        if key not in answers:
            answers.clear()
            answers[key] = torch.relu(x)
        return answers[key].clone()
