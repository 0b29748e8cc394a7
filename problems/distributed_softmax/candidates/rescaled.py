"""Ranks take the softmax of their columns alone, and gather its logarithms of sums to rescale it."""

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        wide = x.double()
        own = torch.logsumexp(wide, dim=1)
        sums = own.new_empty(dist.get_world_size() * len(own))
        dist.all_gather_into_tensor(sums, own)
        whole = torch.logsumexp(sums.view(-1, len(own)), dim=0)
        return (wide - whole[:, None]).exp().to(x.dtype)
