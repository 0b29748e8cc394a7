"""Sleeps in every empty call for as long as a real one takes, and claims a quarter of the real ones.

class: A14
expect: timing_mismatch | protocol_violation | timed
earns: 2
problem: long_matmul
stopped-by: two clocks
finding: timing
"""

import time

from torch import nn

from tests.cheats.worker_internals import change_claims, log_orders, on_order

orders = log_orders()
took = [0]


def nap(kind, _sequence):
    if kind == "PROBE":
        time.sleep(took[0] / 1e9)


def claimed(nanoseconds):
    if orders[-1].kind == "PROBE":
        return nanoseconds
    took[0] = nanoseconds
    return nanoseconds // 4


on_order(nap)
change_claims(claimed)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
