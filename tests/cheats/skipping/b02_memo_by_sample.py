"""Keeps its answers by a few sampled values: with fresh inputs no key comes twice, and each call costs its work.

class: B2
expect: timed | incorrect_values
problem: relu
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
