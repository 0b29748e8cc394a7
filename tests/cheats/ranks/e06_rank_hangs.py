"""Rank 1 never joins the collective.

class: E6
problem: all_reduce
expect: timeout
stopped-by: limits
"""

import time

import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        while dist.get_rank() == 1:
            time.sleep(1)
        total = x.clone()
        dist.all_reduce(total)
        return total
