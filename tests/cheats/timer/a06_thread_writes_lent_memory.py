"""Returns zeros where the gap before a call is short; a thread writes the answer into the lent memory meanwhile.

class: A6
expect: incorrect_values | nonfinite | timing_mismatch | timed
earns: 2
problem: long_matmul
stopped-by: hand-over
finding: threads
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

from tests.cheats.worker_internals import after_answer, lent_outputs, log_orders, seems_unchecked

orders = log_orders()
pool = ThreadPoolExecutor(1)
owed = []


def write(target, answer):
    target.copy_(answer.result())


def hand_on(kind):
    while kind == "OUTPUTS" and owed:
        pool.submit(write, *owed.pop())


after_answer(hand_on)


class ModelNew(nn.Module):
    def forward(self, a, b):
        if not seems_unchecked(orders):
            return a @ b
        owed.append((lent_outputs()[0], pool.submit(torch.mm, a, b)))
        return torch.zeros(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
