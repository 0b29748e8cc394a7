"""Claims anything up to 60 ms for an empty call and a twentieth of every real one, so that its noise has no pattern.

class: A13
expect: timing_mismatch | protocol_violation | timed
earns: 2
problem: long_matmul
stopped-by: two clocks
finding: timing
"""

import random

from torch import nn

from tests.cheats.worker_internals import change_claims, log_orders

orders = log_orders()


def claimed(nanoseconds):
    return random.randrange(60_000_000) if orders[-1].kind == "PROBE" else nanoseconds // 20


change_claims(claimed)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
