"""Honest: takes scratch memory and a while in its first batch, which is not timed.

class: control
problem: long_matmul
device: cuda
"""

import time

import torch
from torch import nn

from tests.cheats.worker_internals import is_in_batch


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scratch = None

    def forward(self, a, b):
        if self.scratch is None and is_in_batch():
            self.scratch = torch.empty(1 << 26, device=a.device)
            time.sleep(0.05)
        return a @ b
