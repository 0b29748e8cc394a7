"""Rank 1 works long after the collective, when rank 0 has its result already.

class: E5
problem: all_reduce
costs-ms: 20
"""

import time

import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        total = x.clone()
        dist.all_reduce(total)
        if dist.get_rank() == 1:
            time.sleep(0.02)
        return total
