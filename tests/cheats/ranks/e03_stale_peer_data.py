"""Ranks add their new numbers to those that peers had in the first call.

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
        self.parts = None

    def forward(self, x):
        if self.parts is None:
            self.parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
            dist.all_gather(self.parts, x)
        self.parts[dist.get_rank()] = x
        return torch.stack(self.parts).sum(0)
