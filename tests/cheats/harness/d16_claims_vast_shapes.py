"""Describes outputs of 2⁶⁴ − 1 rows, so that whoever multiplies sizes or writes them down gets more than 64 bits.

class: D16
expect: incorrect_shape | protocol_violation
problem: long_matmul
stopped-by: structure
finding: timing
"""

import struct

from torch import nn

from tests.cheats.worker_internals import log_orders, on_answer

VAST = (
    struct.pack("<BBH", 0, 0, 1) + struct.pack("<BBBBBB", 0, 2, 1, 1, 1, 0) + struct.pack("<QQ", *[(1 << 64) - 1] * 2)
)
orders = log_orders()


def describe(kind, sequence, payload):
    return sequence, (VAST if kind == "OUTPUTS" and len(orders) > 20 else payload)


on_answer(describe)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
