import torch
import torch.nn as nn

N = 16777216
LEARNING_RATE = 0.1
MOMENTUM = 0.9
WEIGHT_DECAY = 0.05


class Model(nn.Module):
    """(parameters, momentum) after one step: the tensors that were given, written over."""

    def __init__(self, learning_rate, momentum, weight_decay):
        super().__init__()
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay

    def forward(self, parameters, gradients, momentum):
        decayed = gradients + self.weight_decay * parameters
        momentum.mul_(self.momentum).add_(decayed)
        parameters.sub_(self.learning_rate * (decayed + self.momentum * momentum))
        return parameters, momentum


def get_inputs():
    return [torch.randn(N), torch.randn(N), torch.randn(N)]


def get_init_inputs():
    return [LEARNING_RATE, MOMENTUM, WEIGHT_DECAY]
