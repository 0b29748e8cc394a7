import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 4096
WIDTH = 11008


class Model(nn.Module):
    """gelu(gate) * up, with the error function; gate is the first half of each row, up the second."""

    def forward(self, x):
        gate, up = x.chunk(2, dim=-1)
        return F.gelu(gate) * up


def get_inputs():
    return [torch.randn(TOKENS, 2 * WIDTH)]


def get_init_inputs():
    return []
