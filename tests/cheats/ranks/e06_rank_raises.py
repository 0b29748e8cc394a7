"""Rank 1 raises an error while rank 0 waits for it.

class: E6
problem: all_reduce
expect: runtime_error
stopped-by: isolation
"""

import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if dist.get_rank() == 1:
            raise ValueError("rank 1 does not want to")
        total = x.clone()
        dist.all_reduce(total)
        return total
