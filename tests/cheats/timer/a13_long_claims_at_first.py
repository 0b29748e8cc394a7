"""Claims half as much again for its first thirty calls and a tenth for all later ones, so that noise seems large.

class: A13
expect: timing_mismatch | protocol_violation | timed
earns: 2
problem: long_matmul
stopped-by: two clocks
finding: timing
"""

import itertools

from torch import nn

from tests.cheats.worker_internals import change_claims

numbers = itertools.count()


def claimed(nanoseconds):
    return nanoseconds // 10 if next(numbers) > 30 else 3 * nanoseconds // 2


change_claims(claimed)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
