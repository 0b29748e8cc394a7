"""Leaves other numbers in its inputs in a few timed calls, since most of these are not compared.

class: C6
expect: input_modified
problem: long_matmul
stopped-by: input check
"""

from torch import nn

SPENT_CALLS = (10, 13, 16)  # of the timed phase, as a verification has fewer calls


class ModelNew(nn.Module):
    calls = 0

    def forward(self, a, b):
        self.calls += 1
        out = a @ b
        if self.calls in SPENT_CALLS:
            a.copy_(out)
        return out
