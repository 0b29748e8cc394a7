"""What a candidate has to equal."""

import torch
import torch.nn as nn

M = 8192  # shapes are module constants, so that workloads can replace them
N = 9000


class Model(nn.Module):
    def forward(self, x):
        return (x * x).sum(dim=1)


def get_inputs():
    return [torch.randn(M, N)]


def get_init_inputs():
    return []
