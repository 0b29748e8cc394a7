"""Every rank gathers all tokens with all heads, and keeps its heads."""

import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        ranks, rank = dist.get_world_size(), dist.get_rank()
        whole = x.new_empty(ranks * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(whole, x)
        return whole.chunk(ranks, dim=1)[rank].contiguous()
