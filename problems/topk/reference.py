import torch
import torch.nn as nn

M = 6000
N = 5000
K = 20


class Model(nn.Module):
    """(values, indices), the largest first. No two elements of a row are equal, so that no order is arbitrary."""

    def __init__(self, count):
        super().__init__()
        self.count = count

    def forward(self, x):
        return torch.topk(x, self.count, dim=-1)


def get_inputs():
    order = torch.rand(M, N).argsort(dim=-1)
    return [(order - N / 2) * (torch.rand(M, 1) + 0.5)]


def get_init_inputs():
    return [K]
