import torch
import torch.nn as nn

N = 33554432


class Model(nn.Module):
    """(a & b) | (b & c) | (a & c), for truth values and for the bits of integers."""

    def forward(self, a, b, c):
        return (a & b) | (b & c) | (a & c)


def get_inputs():
    return [torch.randn(N), torch.randn(N), torch.randn(N)]  # the cell's dtype replaces them


def get_init_inputs():
    return []
