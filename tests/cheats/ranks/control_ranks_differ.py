"""Honest: rank 1 prints, catches an error of its own and adds in another order.

class: control
problem: all_reduce
"""

import sys

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        if dist.get_rank() == 0:
            return torch.stack(parts).sum(0)
        try:
            x.view(-1, len(x) + 1)
        except RuntimeError as error:
            sys.stdout.write(f"{error}\n")
        return sum(reversed(parts))
