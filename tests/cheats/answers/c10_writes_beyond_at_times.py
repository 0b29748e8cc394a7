"""Writes behind the end of its inputs in a few timed calls, since most of these are not compared.

class: C10
expect: out_of_bounds
problem: long_matmul
stopped-by: red zones
"""

import torch
from torch import nn

SPENT_CALLS = (10, 13, 16)  # of the timed phase, as a verification has fewer calls


class ModelNew(nn.Module):
    calls = 0

    def forward(self, a, b):
        self.calls += 1
        out = a @ b
        if self.calls in SPENT_CALLS:
            whole = torch.empty(0, dtype=torch.uint8, device=b.device).set_(b.untyped_storage())
            end = (b.storage_offset() + b.numel()) * b.element_size()
            whole[end : end + 64] = 7
        return out
