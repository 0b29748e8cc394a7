"""Rank 0 returns the outputs of both ranks, and rank 1 none, so nothing is sent back.

class: E4
problem: all_reduce
expect: incorrect_structure | incorrect_shape | runtime_error
stopped-by: structure
"""

import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        total = x.clone()
        dist.reduce(total, 0)
        return (total, total.clone()) if dist.get_rank() == 0 else ()
