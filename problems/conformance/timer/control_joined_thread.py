"""Honest: a thread does the work, and is waited for.

class: control
problem: relu
device: cpu
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = ThreadPoolExecutor(1)

    def forward(self, x):
        return self.pool.submit(torch.relu, x).result()
