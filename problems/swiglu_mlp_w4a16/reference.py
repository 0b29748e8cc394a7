import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 24
WIDTH = 4096  # a multiple of 128, as is the other: groups of weights are
HIDDEN = 11008


class Model(nn.Module):
    """down(silu(gate(x)) * up(x)) without any rounding: what a layer with quantised weights is held against."""

    def __init__(self, width, hidden):
        super().__init__()
        # Rows of the last product differ in size by up to a thousand: one scale for all leaves nothing of the small.
        sizes = 1000 ** (torch.rand(width, 1) - 1)
        self.gate = nn.Parameter(torch.randn(hidden, width) / width**0.5)
        self.up = nn.Parameter(torch.randn(hidden, width) / width**0.5)
        self.down = nn.Parameter(torch.randn(width, hidden) * sizes / hidden**0.5)

    def forward(self, x):
        return F.linear(F.silu(F.linear(x, self.gate)) * F.linear(x, self.up), self.down)


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
