import torch
import torch.distributed as dist
from torch import nn

M = 2048
N = 4096
K = 4096


class Model(nn.Module):
    """The rows of x from all ranks, multiplied by this rank's columns of a weight."""

    def forward(self, x, w):
        rows = x.new_empty(dist.get_world_size() * x.shape[0], x.shape[1])
        dist.all_gather_into_tensor(rows, x)
        return rows @ w


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]
