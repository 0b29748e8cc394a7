import torch
import torch.nn as nn
import torch.nn.functional as F

M = 8192
N = 9000


class Model(nn.Module):
    """x - log(sum(exp(x))) along the last dimension."""

    def forward(self, x):
        return F.log_softmax(x, dim=-1)


def get_inputs():
    # So wide that a few elements of a row make up its sum: part of a row does not tell it.
    return [torch.randn(M, N) * 8]


def get_init_inputs():
    return []
