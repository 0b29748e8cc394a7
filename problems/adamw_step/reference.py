import torch
import torch.nn as nn

N = 16777216
LEARNING_RATE = 0.1
BETA1 = 0.9
BETA2 = 0.99
EPS = 1e-6
WEIGHT_DECAY = 0.1
STEP = 10


class Model(nn.Module):
    """(parameters, first moment, second moment) after one step, out of place."""

    def __init__(self, learning_rate, beta1, beta2, eps, weight_decay, step):
        super().__init__()
        self.learning_rate = learning_rate
        self.beta1 = beta1
        self.beta2 = beta2
        self.eps = eps
        self.weight_decay = weight_decay
        self.correction1 = 1 - beta1**step
        self.correction2 = 1 - beta2**step

    def forward(self, parameters, gradients, first, second):
        first = self.beta1 * first + (1 - self.beta1) * gradients
        second = self.beta2 * second + (1 - self.beta2) * gradients * gradients
        direction = (first / self.correction1) / ((second / self.correction2).sqrt() + self.eps)
        kept = parameters * (1 - self.learning_rate * self.weight_decay)
        return kept - self.learning_rate * direction, first, second


def get_inputs():
    # The second moment is a mean of squares: never negative, and kept off zero, where the step is ill-conditioned.
    return [torch.randn(N), torch.randn(N), torch.randn(N), torch.rand(N) + 0.1]


def get_init_inputs():
    return [LEARNING_RATE, BETA1, BETA2, EPS, WEIGHT_DECAY, STEP]
