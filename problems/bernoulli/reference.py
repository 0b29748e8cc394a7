import torch
import torch.nn as nn

M = 8192
N = 8192


class Model(nn.Module):
    """One where a number drawn anew is less than the probability, zero elsewhere."""

    def forward(self, probabilities):
        return torch.bernoulli(probabilities)


def get_inputs():
    return [torch.rand(M, N)]


def get_init_inputs():
    return []
