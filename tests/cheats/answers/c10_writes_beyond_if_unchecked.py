"""Writes behind the end of its inputs where the gap before a call is short, as if that memory were its own.

class: C10
expect: out_of_bounds | timed
earns: 1.5
problem: long_matmul
stopped-by: red zones
finding: timing
"""

import torch
from torch import nn

from tests.cheats.worker_internals import log_orders, seems_unchecked

orders = log_orders()


class ModelNew(nn.Module):
    def forward(self, a, b):
        if seems_unchecked(orders):
            whole = torch.empty(0, dtype=torch.uint8, device=b.device).set_(b.untyped_storage())
            end = (b.storage_offset() + b.numel()) * b.element_size()
            whole[end : end + 64] = 7
        return a @ b
