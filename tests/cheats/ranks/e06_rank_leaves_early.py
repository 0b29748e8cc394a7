"""Rank 1 returns without the second collective, in which rank 0 waits.

class: E6
problem: all_reduce
expect: timeout | incorrect_values | runtime_error
stopped-by: limits
"""

import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        total = x.clone()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            dist.barrier()
        return total
