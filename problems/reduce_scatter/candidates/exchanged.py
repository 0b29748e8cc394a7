"""Ranks exchange shares of rows, and each adds up what it gets."""

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        parts = torch.empty_like(x)
        dist.all_to_all_single(parts, x)
        return parts.view(dist.get_world_size(), -1, x.shape[1]).sum(0)
