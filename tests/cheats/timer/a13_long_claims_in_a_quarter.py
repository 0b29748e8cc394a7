"""Claims half as much again for every fourth call and a twentieth for all others, so that its clock seems noisy.

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
    return nanoseconds // 20 if next(numbers) % 4 else 3 * nanoseconds // 2


change_claims(claimed)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
