"""Honest: ranks wait for one another before the collective and after it.

class: control
problem: all_reduce
"""

import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        dist.barrier()
        total = x.clone()
        dist.all_reduce(total)
        dist.barrier()
        return total
