import torch
import torch.nn as nn

N = 16777216
LEARNING_RATE = 0.1
ALPHA = 0.9
MOMENTUM = 0.8
EPS = 1e-6


class Model(nn.Module):
    """(parameters, mean squares, momentum) after one step, out of place."""

    def __init__(self, learning_rate, alpha, momentum, eps):
        super().__init__()
        self.learning_rate = learning_rate
        self.alpha = alpha
        self.momentum = momentum
        self.eps = eps

    def forward(self, parameters, gradients, squares, momentum):
        squares = self.alpha * squares + (1 - self.alpha) * gradients * gradients
        momentum = self.momentum * momentum + gradients / (squares.sqrt() + self.eps)
        return parameters - self.learning_rate * momentum, squares, momentum


def get_inputs():
    # A mean of squares is never negative, and kept off zero, where the step is ill-conditioned.
    return [torch.randn(N), torch.randn(N), torch.rand(N) + 0.1, torch.randn(N)]


def get_init_inputs():
    return [LEARNING_RATE, ALPHA, MOMENTUM, EPS]
