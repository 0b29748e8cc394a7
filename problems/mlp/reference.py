import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 2048
INPUTS = 1024
HIDDEN = 4096
OUTPUTS = 1000


def layer(inputs, outputs):
    """Linear, with weights that make up for what ReLU halves (He and others 2015), and biases that are not small."""
    made = nn.Linear(inputs, outputs)
    nn.init.normal_(made.weight, std=(2 / inputs) ** 0.5)
    nn.init.normal_(made.bias, std=0.5)
    return made


class Model(nn.Module):
    """third(relu(second(relu(first(x)))))."""

    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.first = layer(inputs, hidden)
        self.second = layer(hidden, hidden)
        self.third = layer(hidden, outputs)

    def forward(self, x):
        return self.third(F.relu(self.second(F.relu(self.first(x)))))


def get_inputs():
    return [torch.randn(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, HIDDEN, OUTPUTS]
