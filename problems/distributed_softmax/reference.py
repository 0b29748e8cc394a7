import torch
import torch.distributed as dist
from torch import nn

M = 8192
N = 6000


class Model(nn.Module):
    """Softmax over rows whose columns are spread over the ranks; each returns its own columns."""

    def forward(self, x):
        top = x.amax(dim=1, keepdim=True)
        dist.all_reduce(top, dist.ReduceOp.MAX)
        powers = (x - top).exp()
        total = powers.sum(dim=1, keepdim=True)
        dist.all_reduce(total)
        return powers / total


def get_inputs():
    return [torch.randn(M, N)]
