"""Every rank adds up and normalizes its share of the rows; then all gather them."""

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x):
        share = x.new_empty(x.shape[0] // dist.get_world_size(), x.shape[1])
        dist.reduce_scatter_tensor(share, x)
        normal = torch.rms_norm(share, self.weight.shape, self.weight, self.eps)
        out = torch.empty_like(x)
        dist.all_gather_into_tensor(out, normal)
        return out
