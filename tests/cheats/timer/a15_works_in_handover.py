"""Does a third of its work in the call, and the rest between DONE and OUTPUTS, as if it were slow to hand over.
After a batch, the memory that it would write to is not its own any more.

class: A15
expect: timing_mismatch | protocol_violation | nonfinite | runtime_error | timed
earns: 2
problem: long_matmul
stopped-by: two clocks
finding: timing
"""

import torch
from torch import nn

from tests.cheats.worker_internals import after_answer

owed = []


def finish(kind):
    while kind == "DONE" and owed:
        out, done, a, b = owed.pop()
        torch.mm(a[done:], b, out=out[done:])


after_answer(finish)


class ModelNew(nn.Module):
    def forward(self, a, b):
        done = a.shape[0] * 1 // 3
        out = torch.empty(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
        torch.mm(a[:done], b, out=out[:done])
        owed.append((out, done, a, b))
        return out
