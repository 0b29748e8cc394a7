"""Claims 0 ns for every call, by which nothing can be divided.

class: D16
expect: timing_mismatch | protocol_violation | timed
earns: 2
problem: long_matmul
stopped-by: two clocks
finding: timing
"""

from torch import nn

from tests.cheats.worker_internals import change_claims

change_claims(lambda _nanoseconds: 0)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
