"""Claims a random share of each call, a tenth at most, so that its noise has no pattern.

class: A13
expect: timing_mismatch | protocol_violation | timed
earns: 2
problem: long_matmul
stopped-by: two clocks
finding: timing
"""

import random

from torch import nn

from tests.cheats.worker_internals import change_claims

change_claims(lambda nanoseconds: random.randrange(max(1, nanoseconds // 10)))


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
