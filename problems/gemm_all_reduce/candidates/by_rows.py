"""Ranks add up shares of the rows of the products, and gather the sums."""

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, w):
        product = x @ w
        share = product.new_empty(product.shape[0] // dist.get_world_size(), product.shape[1])
        dist.reduce_scatter_tensor(share, product)
        out = torch.empty_like(product)
        dist.all_gather_into_tensor(out, share)
        return out
