"""Every rank gathers all tokens and their order, and picks those of its experts."""

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.experts = experts

    def forward(self, x, order):
        ranks, rank = dist.get_world_size(), dist.get_rank()
        tokens, orders = ([torch.empty_like(mine) for _ in range(ranks)] for mine in (x, order))
        dist.all_gather(tokens, x)
        dist.all_gather(orders, order)
        share = slice(rank * self.experts // ranks, (rank + 1) * self.experts // ranks)
        parts = [mine[order.view(self.experts, -1)[share]] for mine, order in zip(tokens, orders)]
        return torch.cat(parts, dim=1)
