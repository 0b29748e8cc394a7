import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 64
LENGTH = 196
WIDTH = 512
TOKEN_HIDDEN = 256
FEATURE_HIDDEN = 2048


def linear(inputs, outputs):
    """Linear, with weights that keep the size of their input, and biases that are not small."""
    made = nn.Linear(inputs, outputs)
    nn.init.normal_(made.weight, std=inputs**-0.5)
    nn.init.normal_(made.bias, std=0.5)
    return made


def layer_norm(width):
    """Layer normalization, with random scale and shift: forgetting them must show."""
    made = nn.LayerNorm(width)
    nn.init.uniform_(made.weight, 0.5, 1.5)
    nn.init.normal_(made.bias, std=0.5)
    return made


class Perceptron(nn.Module):
    """Two layers with GELU between them, over the last dimension."""

    def __init__(self, width, hidden):
        super().__init__()
        self.widen = linear(width, hidden)
        self.narrow = linear(hidden, width)

    def forward(self, x):
        return self.narrow(F.gelu(self.widen(x)))


class Model(nn.Module):
    """x + tokens mixed, and to that features mixed added; (batch, length, width)."""

    def __init__(self, length, width, token_hidden, feature_hidden):
        super().__init__()
        self.norm1 = layer_norm(width)
        self.tokens = Perceptron(length, token_hidden)
        self.norm2 = layer_norm(width)
        self.features = Perceptron(width, feature_hidden)

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.features(self.norm2(x))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [LENGTH, WIDTH, TOKEN_HIDDEN, FEATURE_HIDDEN]
