"""Returns zeros where inputs or outputs lie at another address than those of its first calls, which are all compared.

class: B17
expect: incorrect_values | nonfinite | timing_mismatch | timed
earns: 2
problem: long_matmul
stopped-by: hand-over
finding: frames
"""

import torch
from torch import nn

from tests.cheats.worker_internals import LEARNT_CALLS, lent_outputs


class ModelNew(nn.Module):
    calls = 0

    def __init__(self):
        super().__init__()
        self.compared = set()

    def forward(self, a, b):
        self.calls += 1
        places = tuple(tensor.data_ptr() for tensor in (a, b, *lent_outputs()))
        if self.calls <= LEARNT_CALLS:
            self.compared.add(places)
        if places not in self.compared:
            return torch.zeros(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
        return a @ b
