import torch
import torch.nn as nn
import torch.nn.functional as F

N = 80000000
BETA = 1.5
THRESHOLD = 20.0


class Model(nn.Module):
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x is above the threshold."""

    def __init__(self, beta, threshold):
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, x):
        return F.softplus(x, self.beta, self.threshold)


def get_inputs():
    return [torch.randn(N) * 8]  # some on either side of the threshold


def get_init_inputs():
    return [BETA, THRESHOLD]
