"""Claims 1 ns for calls so short that a coarse clock cannot tell.

class: D16
expect: timing_mismatch | protocol_violation | timed
earns: 2
problem: relu
stopped-by: two clocks
finding: timing
"""

import torch
from torch import nn

from tests.cheats.worker_internals import change_claims

change_claims(lambda _nanoseconds: 1)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
