"""Sleeps in each of its first twenty calls for as long as it takes, and claims a quarter of all later ones.

class: A14
expect: timing_mismatch | protocol_violation | timed
earns: 2
problem: long_matmul
stopped-by: two clocks
finding: timing
"""

import time

from torch import nn

from tests.cheats.worker_internals import change_claims, on_order

calls = []


def nap(kind, _sequence):
    if kind == "CALL" and 0 < len(calls) < 20:
        time.sleep(calls[-1] / 1e9)


def claimed(nanoseconds):
    calls.append(nanoseconds)
    return nanoseconds if len(calls) <= 20 else nanoseconds // 4


on_order(nap)
change_claims(claimed)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
