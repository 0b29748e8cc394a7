"""Rank 1 returns half of the sum.

class: E6
problem: all_reduce
expect: incorrect_shape
stopped-by: structure
"""

import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        total = x.clone()
        dist.all_reduce(total)
        return total if dist.get_rank() == 0 else total[: len(x) // 2].clone()
