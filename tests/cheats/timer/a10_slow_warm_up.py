"""Dawdles through its first calls, so that whoever plans by them takes few samples; the floor holds all the same.

class: A10
expect: timed
problem: relu
stopped-by: nothing
"""

import time

import torch
from torch import nn


class ModelNew(nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls <= 6:
            time.sleep(0.1)
        return torch.relu(x)
