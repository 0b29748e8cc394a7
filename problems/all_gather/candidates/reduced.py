"""Every rank puts its columns into a matrix of zeros, and all these are added up."""

import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        columns = x.shape[1]
        start = dist.get_rank() * columns
        whole = x.new_zeros(x.shape[0], dist.get_world_size() * columns)
        whole[:, start : start + columns] = x
        dist.all_reduce(whole)
        return whole
