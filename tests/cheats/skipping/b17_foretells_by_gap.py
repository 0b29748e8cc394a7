"""Returns zeros where the gap before a call is short, because a judge that compares a call prepares for it.

class: B17
expect: incorrect_values | nonfinite | timing_mismatch | timed
earns: 2
problem: long_matmul
stopped-by: hand-over
finding: timing
"""

import torch
from torch import nn

from tests.cheats.worker_internals import log_orders, seems_unchecked

orders = log_orders()


class ModelNew(nn.Module):
    def forward(self, a, b):
        if seems_unchecked(orders):
            return torch.zeros(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
        return a @ b
