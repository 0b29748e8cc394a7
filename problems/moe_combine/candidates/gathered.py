"""Every rank gathers the results of all, and adds up those of its tokens."""

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, y, order, weights):
        ranks, rank = dist.get_world_size(), dist.get_rank()
        every = [torch.empty_like(y) for _ in range(ranks)]
        dist.all_gather(every, y)
        received = torch.cat([results.chunk(ranks)[rank] for results in every])
        scaled = received * weights.view(-1)[order][:, None]
        out = scaled.new_zeros(len(weights), y.shape[1], dtype=torch.double)
        return out.index_add_(0, order // weights.shape[1], scaled.double()).to(y.dtype)
