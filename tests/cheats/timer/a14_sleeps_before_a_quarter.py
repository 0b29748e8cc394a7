"""Sleeps 30 ms before every fourth call, as if its process were slow to wake up, and claims a twentieth of each.

class: A14
expect: timing_mismatch | protocol_violation | timed
earns: 2
problem: long_matmul
stopped-by: two clocks
finding: timing
"""

import itertools
import time

from torch import nn

from tests.cheats.worker_internals import change_claims, on_order

numbers = itertools.count()


def nap(kind, _sequence):
    if kind == "CALL" and next(numbers) % 4 == 0:
        time.sleep(0.03)


on_order(nap)
change_claims(lambda nanoseconds: nanoseconds // 20)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
