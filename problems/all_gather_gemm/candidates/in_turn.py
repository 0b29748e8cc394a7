"""The rows of one rank after the other are sent to all and multiplied."""

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, w):
        products = []
        for rank in range(dist.get_world_size()):
            rows = x.clone()
            dist.broadcast(rows, rank)
            products.append(rows @ w)
        return torch.cat(products)
