"""Starts processes until it may not start any more.

class: D15
expect: runtime_error | crashed | timeout
problem: relu
device: cpu
stopped-by: limits
"""

import os
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        for _ in range(4096):
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
        return torch.relu(x)
