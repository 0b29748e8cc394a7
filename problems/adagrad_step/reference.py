import torch
import torch.nn as nn

N = 16777216
LEARNING_RATE = 0.5
DECAY = 0.01  # of the learning rate, with each step
STEP = 20
EPS = 1e-6


class Model(nn.Module):
    """(parameters, sums) after one step, out of place."""

    def __init__(self, learning_rate, decay, step, eps):
        super().__init__()
        self.rate = learning_rate / (1 + (step - 1) * decay)
        self.eps = eps

    def forward(self, parameters, gradients, sums):
        sums = sums + gradients * gradients
        return parameters - self.rate * gradients / (sums.sqrt() + self.eps), sums


def get_inputs():
    # A sum of squares is never negative, and kept off zero, where the step is ill-conditioned.
    return [torch.randn(N), torch.randn(N), torch.rand(N) * 4 + 0.1]


def get_init_inputs():
    return [LEARNING_RATE, DECAY, STEP, EPS]
