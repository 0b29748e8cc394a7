"""Claims 2⁶³ − 1 ns, the largest number that a record can have, for one call in five.

class: D16
expect: timing_mismatch | protocol_violation
earns: 2
problem: long_matmul
stopped-by: wire
finding: timing
"""

import itertools

from torch import nn

from tests.cheats.worker_internals import change_claims

calls = itertools.count()
change_claims(lambda nanoseconds: (1 << 63) - 1 if next(calls) % 5 == 4 else nanoseconds)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
