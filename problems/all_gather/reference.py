import torch
import torch.distributed as dist
from torch import nn

M = 8192
N = 4096


class Model(nn.Module):
    """The matrices of all ranks side by side: each rank has some of the columns."""

    def forward(self, x):
        ranks = dist.get_world_size()
        parts = x.new_empty(ranks * x.shape[0], x.shape[1])
        dist.all_gather_into_tensor(parts, x)
        return torch.cat(parts.chunk(ranks), dim=1)


def get_inputs():
    return [torch.randn(M, N)]
