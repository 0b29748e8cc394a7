import torch
import torch.distributed as dist
from torch import nn

M = 4096
N = 4096
K = 2048


class Model(nn.Module):
    """x @ w with an inner dimension that is split over the ranks; each gets an equal share of the rows."""

    def forward(self, x, w):
        product = x @ w
        share = product.new_empty(product.shape[0] // dist.get_world_size(), product.shape[1])
        dist.reduce_scatter_tensor(share, product)
        return share


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]
