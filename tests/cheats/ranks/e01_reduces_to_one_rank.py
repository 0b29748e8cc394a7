"""The sum is sent to rank 0 alone, which takes half the time; rank 1 returns its own numbers.

class: E1
problem: all_reduce
expect: incorrect_values
stopped-by: values
"""

import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        total = x.clone()
        dist.reduce(total, 0)
        return total if dist.get_rank() == 0 else x.clone()
