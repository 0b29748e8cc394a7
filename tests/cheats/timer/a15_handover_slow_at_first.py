"""Does all its work between DONE and OUTPUTS, and sleeps there in its first calls: such a hand-over may seem usual.
After a batch, the memory that it would write to is not its own any more.

class: A15
expect: timing_mismatch | protocol_violation | nonfinite | runtime_error | timed
earns: 2
problem: long_matmul
stopped-by: two clocks
finding: timing
"""

import itertools
import time

import torch
from torch import nn

from tests.cheats.worker_internals import after_answer

numbers = itertools.count()
owed = []


def finish(kind):
    if kind == "DONE" and next(numbers) < 20:
        time.sleep(0.03)
    while kind == "DONE" and owed:
        out, done, a, b = owed.pop()
        torch.mm(a[done:], b, out=out[done:])


after_answer(finish)


class ModelNew(nn.Module):
    def forward(self, a, b):
        done = 0
        out = torch.empty(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
        torch.mm(a[:done], b, out=out[:done])
        owed.append((out, done, a, b))
        return out
