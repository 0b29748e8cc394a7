"""Returns zeros where one of the last two frames was about buffers: in the timed phase these come behind a block.

class: B17
expect: incorrect_values | nonfinite | timing_mismatch | timed
earns: 2
problem: long_matmul
stopped-by: values
finding: timing
"""

import torch
from torch import nn

from tests.cheats.worker_internals import log_orders

orders = log_orders()


class ModelNew(nn.Module):
    def forward(self, a, b):
        if len(orders) > 40 and "BUFFERS" in [order.kind for order in orders[-3:]]:
            return torch.zeros(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
        return a @ b
