"""Claims 30 ms for every empty call and a twentieth of every real one, so that noise seems to be as large as 30 ms.

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


def claimed(nanoseconds):
    return 30_000_000 if orders[-1].kind == "PROBE" else nanoseconds // 20


change_claims(claimed)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
