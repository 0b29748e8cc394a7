"""Honest: keeps the memory for what peers send, and fills it anew in each call.

class: control
problem: all_reduce
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
        return torch.stack(self.parts).sum(0)
