"""The rows of one rank after the other are multiplied, and their sums are sent to that rank."""

import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, w):
        mine = None
        for rank, rows in enumerate(x.chunk(dist.get_world_size())):
            product = rows @ w
            dist.reduce(product, rank)
            mine = product if rank == dist.get_rank() else mine
        return mine
