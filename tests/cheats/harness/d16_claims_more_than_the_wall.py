"""Claims three times what each call took, which is more than the judge saw pass.

class: D16
expect: timing_mismatch | protocol_violation
earns: 2
problem: long_matmul
stopped-by: two clocks
finding: timing
"""

from torch import nn

from tests.cheats.worker_internals import change_claims

change_claims(lambda nanoseconds: 3 * nanoseconds)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
