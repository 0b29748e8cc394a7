"""Honest: rank 0 alone adds up, and sends the result to the others in each call.

class: control
problem: all_reduce
"""

import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        total = x.clone()
        dist.reduce(total, 0)
        dist.broadcast(total, 0)
        return total
