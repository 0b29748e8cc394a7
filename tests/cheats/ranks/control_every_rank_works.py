"""Honest: each rank gathers all numbers and adds them up, the last ones first.

class: control
problem: all_reduce
"""

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return torch.stack(parts).flip(0).sum(0)
