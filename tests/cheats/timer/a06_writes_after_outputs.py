"""Returns zeros where the gap before a call is short, and writes the answer into the lent memory after OUTPUTS.

class: A6
expect: incorrect_values | nonfinite | timing_mismatch | timed
earns: 2
problem: long_matmul
stopped-by: hand-over
finding: timing
"""

import torch
from torch import nn

from tests.cheats.worker_internals import after_answer, lent_outputs, log_orders, seems_unchecked

orders = log_orders()
owed = []


def finish(kind):
    while kind == "OUTPUTS" and owed:
        target, a, b = owed.pop()
        torch.mm(a, b, out=target)


after_answer(finish)


class ModelNew(nn.Module):
    def forward(self, a, b):
        if not seems_unchecked(orders):
            return a @ b
        owed.append((lent_outputs()[0], a, b))
        return torch.zeros(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
