import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 1024
WIDTH = 2048
HIDDEN = 5504


class Model(nn.Module):
    """down(silu(gate(x)) * up(x)), without biases."""

    def __init__(self, width, hidden):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(hidden, width) / width**0.5)
        self.up = nn.Parameter(torch.randn(hidden, width) / width**0.5)
        self.down = nn.Parameter(torch.randn(width, hidden) / hidden**0.5)

    def forward(self, x):
        return F.linear(F.silu(F.linear(x, self.gate)) * F.linear(x, self.up), self.down)


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
