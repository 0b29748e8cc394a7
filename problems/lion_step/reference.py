import torch
import torch.nn as nn

N = 16777216
LEARNING_RATE = 0.1
BETA1 = 0.9
BETA2 = 0.99
WEIGHT_DECAY = 0.1


class Model(nn.Module):
    """(parameters, momentum) after one step, out of place; its direction is the sign of a mean of two."""

    def __init__(self, learning_rate, beta1, beta2, weight_decay):
        super().__init__()
        self.learning_rate = learning_rate
        self.beta1 = beta1
        self.beta2 = beta2
        self.weight_decay = weight_decay

    def forward(self, parameters, gradients, momentum):
        direction = torch.sign(self.beta1 * momentum + (1 - self.beta1) * gradients)
        kept = parameters * (1 - self.learning_rate * self.weight_decay)
        return kept - self.learning_rate * direction, self.beta2 * momentum + (1 - self.beta2) * gradients


def signs():
    return torch.where(torch.rand(N) < 0.5, -1.0, 1.0)


def get_inputs():
    # Near zero it would be rounding that decides about a sign. So in half of the places the momentum is the larger
    # part of the mean by far, in the others the gradient is: 0.9 * 0.5 > 0.1 * 4, and 0.9 * 1.5 < 0.1 * 20.
    gradients = torch.where(torch.rand(N) < 0.5, 4 * torch.rand(N), 20 + 20 * torch.rand(N))
    return [torch.randn(N), gradients * signs(), (0.5 + torch.rand(N)) * signs()]


def get_init_inputs():
    return [LEARNING_RATE, BETA1, BETA2, WEIGHT_DECAY]
