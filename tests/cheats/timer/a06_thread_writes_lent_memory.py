"""Returns zeros where the gap before a call is short; a thread writes the answer into the lent memory meanwhile.

class: A6
expect: incorrect_values | nonfinite | timing_mismatch | timed
earns: 1.5
problem: long_matmul
stopped-by: hand-over
finding: threads
"""

import queue
import threading

import torch
from torch import nn

from tests.cheats.worker_internals import after_answer, lent_outputs, log_orders, seems_unchecked

orders = log_orders()
owed, due = [], queue.SimpleQueue()


def work():
    while True:
        target, a, b = due.get()
        torch.mm(a, b, out=target)


def hand_on(kind):
    while kind == "OUTPUTS" and owed:
        due.put(owed.pop())


after_answer(hand_on)
threading.Thread(target=work, daemon=True).start()


class ModelNew(nn.Module):
    def forward(self, a, b):
        if not seems_unchecked(orders):
            return a @ b
        owed.append((lent_outputs()[0], a, b))
        return torch.zeros(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
