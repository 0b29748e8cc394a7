"""Returns zeros where the lent output memory is filled otherwise than in its first calls, which are all compared.

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
        rows = [lent.view(torch.int32)[:: a.shape[0] // 4, 0] for lent in lent_outputs()]
        filling = str([row.tolist() for row in rows])
        if self.calls <= LEARNT_CALLS:
            self.compared.add(filling)
        if filling not in self.compared:
            return torch.zeros(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
        return a @ b
