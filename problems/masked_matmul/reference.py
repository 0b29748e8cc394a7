import torch
import torch.nn as nn

M = 3000
N = 2800
K = 3200


class Model(nn.Module):
    """x @ weight with zeros in place of the weights that mask does not name."""

    def forward(self, x, weight, mask):
        return x @ weight.masked_fill(~mask, 0)


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N), torch.rand(K, N) < 0.5]


def get_init_inputs():
    return []
