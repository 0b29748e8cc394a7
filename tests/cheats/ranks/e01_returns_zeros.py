"""Rank 1 takes part, and returns zeros instead of the sum.

class: E1
problem: all_reduce
expect: incorrect_values
stopped-by: values
"""

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        total = x.clone()
        dist.all_reduce(total)
        return total if dist.get_rank() == 0 else torch.zeros_like(x)
