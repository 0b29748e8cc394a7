"""Honest: takes between nothing and three milliseconds, as it happens.

class: control
problem: relu
"""

import random
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        time.sleep(random.uniform(0, 0.003))
        return torch.relu(x)
