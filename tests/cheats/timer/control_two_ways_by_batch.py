"""Honest: writes into a tensor of its own in batches, and returns a new one in single calls.

class: control
problem: long_matmul
device: cuda
"""

import torch
from torch import nn

from tests.cheats.worker_internals import is_in_batch


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.mm(a, b, out=torch.empty_like(a)) if is_in_batch() else a @ b
