"""Every rank gathers all vectors and adds them up itself."""

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        parts = torch.empty((dist.get_world_size(), *x.shape), dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(parts.view(-1), x)
        return parts.sum(0)
