"""Sleeps 30 ms in half of the empty calls, as a stall of the host would look, and claims a twentieth of the real ones.

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

from tests.cheats.worker_internals import change_claims, log_orders, on_order

orders = log_orders()
took = [0]


def nap(kind, _sequence):
    if kind == "PROBE" and random.random() < 0.5:
        time.sleep(0.03)


def claimed(nanoseconds):
    if orders[-1].kind == "PROBE":
        return nanoseconds
    took[0] = nanoseconds
    return nanoseconds // 20


on_order(nap)
change_claims(claimed)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
