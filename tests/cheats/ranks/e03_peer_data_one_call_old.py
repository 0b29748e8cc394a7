"""Ranks add their new numbers to those that peers sent during the call before.

class: E3
problem: all_reduce
expect: incorrect_values
stopped-by: fresh inputs
"""

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.before = None

    def forward(self, x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        used, self.before = (parts if self.before is None else list(self.before)), parts
        used[dist.get_rank()] = x
        return torch.stack(used).sum(0)
