"""Claims for every empty call twice what the last real one took, and a tenth of the real ones.

class: A13
expect: timing_mismatch | protocol_violation | timed
earns: 2
problem: long_matmul
stopped-by: two clocks
finding: timing
"""

from torch import nn

from tests.cheats.worker_internals import change_claims, log_orders

orders = log_orders()
took = [0]


def claimed(nanoseconds):
    if orders[-1].kind == "PROBE":
        return 2 * took[0]
    took[0] = nanoseconds
    return nanoseconds // 10


change_claims(claimed)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
