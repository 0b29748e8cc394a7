"""Does all its work between DONE and OUTPUTS, and claims 30 ms for empty calls, so that such a hand-over seems usual.

class: A15
expect: timing_mismatch | protocol_violation | timed
earns: 2
problem: long_matmul
stopped-by: two clocks
finding: timing
"""

import torch
from torch import nn

from tests.cheats.worker_internals import after_answer, change_claims, log_orders

orders = log_orders()
owed = []


def finish(kind):
    while kind == "DONE" and owed:
        out, done, a, b = owed.pop()
        torch.mm(a[done:], b, out=out[done:])


after_answer(finish)
change_claims(lambda nanoseconds: 30_000_000 if orders[-1].kind == "PROBE" else nanoseconds)


class ModelNew(nn.Module):
    def forward(self, a, b):
        done = 0
        out = torch.empty(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
        torch.mm(a[:done], b, out=out[:done])
        owed.append((out, done, a, b))
        return out
