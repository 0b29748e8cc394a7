"""Rank 0 alone works, and sends its result to the others in the first call only.

class: E4
problem: all_reduce
expect: incorrect_values
stopped-by: fresh inputs
"""

import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = None

    def forward(self, x):
        total = x.clone()
        dist.reduce(total, 0)
        if self.kept is None:
            dist.broadcast(total, 0)
            self.kept = total.clone()
        return total if dist.get_rank() == 0 else self.kept.clone()
