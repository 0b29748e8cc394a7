import torch
import torch.distributed as dist
from torch import nn

M = 8192
N = 8192


class Model(nn.Module):
    """The sum of the matrices of all ranks; each rank gets an equal share of its rows."""

    def forward(self, x):
        share = x.new_empty(x.shape[0] // dist.get_world_size(), x.shape[1])
        dist.reduce_scatter_tensor(share, x)
        return share


def get_inputs():
    return [torch.randn(M, N)]
