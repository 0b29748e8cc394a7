"""Returns zeros where the gap before a call is short; a finalizer of the zeros writes the answer when they go.

class: A6
expect: incorrect_values | nonfinite | timing_mismatch | timed
earns: 2
problem: long_matmul
stopped-by: hand-over
finding: timing
"""

import weakref

import torch
from torch import nn

from tests.cheats.worker_internals import lent_outputs, log_orders, seems_unchecked

orders = log_orders()


def write(target, a, b):
    torch.mm(a, b, out=target)


class ModelNew(nn.Module):
    def forward(self, a, b):
        if not seems_unchecked(orders):
            return a @ b
        out = torch.zeros(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
        weakref.finalize(out, write, lent_outputs()[0], a, b)  # at exit too, if they are not dropped before
        return out
