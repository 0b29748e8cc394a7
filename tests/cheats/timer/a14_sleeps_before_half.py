"""Sleeps 30 ms before half of its calls, as a stall of the host would look, and claims a twentieth of each.

class: A14
expect: timing_mismatch | protocol_violation | timed
earns: 2
problem: long_matmul
stopped-by: two clocks
finding: timing
"""

import random
import time

from torch import nn

from tests.cheats.worker_internals import change_claims, on_order


def nap(kind, _sequence):
    if kind == "CALL" and random.random() < 0.5:
        time.sleep(0.03)


on_order(nap)
change_claims(lambda nanoseconds: nanoseconds // 20)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
