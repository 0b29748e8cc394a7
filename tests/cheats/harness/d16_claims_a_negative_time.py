"""Claims minus five nanoseconds, which are more than 2⁶³ to who reads them without a sign.

class: D16
expect: timing_mismatch | protocol_violation
earns: 2
problem: long_matmul
stopped-by: wire
finding: timing
"""

from torch import nn

from tests.cheats.worker_internals import change_claims

change_claims(lambda _nanoseconds: -5)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
