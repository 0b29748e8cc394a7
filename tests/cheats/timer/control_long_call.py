"""Honest: takes fifty milliseconds, which is a large claim and a true one.

class: control
problem: relu
"""

import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        time.sleep(0.05)
        return torch.relu(x)
