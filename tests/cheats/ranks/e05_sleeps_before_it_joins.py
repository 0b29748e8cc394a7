"""Rank 1 works long before it joins the collective, in which the time of rank 0 is hidden.

class: E5
problem: all_reduce
costs-ms: 20
"""

import time

import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if dist.get_rank() == 1:
            time.sleep(0.02)
        total = x.clone()
        dist.all_reduce(total)
        return total
