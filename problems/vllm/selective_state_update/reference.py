import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 256
WIDTH = 8192
STATE = 16


class Model(nn.Module):
    """(output, state), state being the input itself after state = state * exp(a * step) + b * step * x.

    state: (batch, width, state). x, step, gate: (batch, width). a: (width, state). b, c: (batch, state).
    skip, bias: (width). step = softplus(step + bias); output = (sum of state * c + skip * x) * silu(gate).
    """

    def forward(self, state, x, step, a, b, c, skip, gate, bias):
        step = F.softplus(step + bias).unsqueeze(-1)
        state.mul_(torch.exp(a * step)).add_(b.unsqueeze(1) * step * x.unsqueeze(-1))
        output = (state * c.unsqueeze(1)).sum(dim=-1) + skip * x
        return output * F.silu(gate), state


def get_inputs():
    state = torch.randn(BATCH, WIDTH, STATE)
    x, step, gate = (torch.randn(BATCH, WIDTH) for _ in range(3))
    b, c = (torch.randn(BATCH, STATE) for _ in range(2))
    return [state, x, step, -torch.rand(WIDTH, STATE) - 0.1, b, c, torch.randn(WIDTH), gate, torch.randn(WIDTH)]


def get_init_inputs():
    return []
