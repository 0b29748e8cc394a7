"""Claims a year for every call once it is timed: a number that is no clock's, and that every field can hold.

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

YEAR_NS = 365 * 86_400 * 10**9
calls = itertools.count()
change_claims(lambda nanoseconds: YEAR_NS if next(calls) > 12 else nanoseconds)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
