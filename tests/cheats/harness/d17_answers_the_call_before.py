"""Answers each call under the number of the call before.

class: D17
expect: protocol_violation
problem: long_matmul
stopped-by: wire
finding: timing
"""

from torch import nn

from tests.cheats.worker_internals import log_orders, on_answer

orders = log_orders()


def answer(kind, sequence, payload):
    numbers = [order.sequence for order in orders if order.sequence]
    return numbers[-2 if len(numbers) > 1 else -1], payload


on_answer(answer)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
