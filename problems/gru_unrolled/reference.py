import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 256
STEPS = 32
INPUTS = 1024
HIDDEN = 1024


class Model(nn.Module):
    """The state after every step, (batch, steps, hidden); gates in the order reset, update, new."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.input_weight = nn.Parameter(torch.randn(3 * hidden, inputs) / inputs**0.5)
        self.input_bias = nn.Parameter(torch.randn(3 * hidden) / 2)
        self.state_weight = nn.Parameter(torch.randn(3 * hidden, hidden) / hidden**0.5)
        self.state_bias = nn.Parameter(torch.randn(3 * hidden) / 2)

    def forward(self, x, state):
        states = []
        for given in F.linear(x, self.input_weight, self.input_bias).unbind(dim=1):
            reset, update, new = given.chunk(3, dim=-1)
            from_reset, from_update, from_new = F.linear(state, self.state_weight, self.state_bias).chunk(3, dim=-1)
            new = torch.tanh(new + torch.sigmoid(reset + from_reset) * from_new)
            keep = torch.sigmoid(update + from_update)
            state = keep * state + (1 - keep) * new
            states.append(state)
        return torch.stack(states, dim=1)


def get_inputs():
    return [torch.randn(BATCH, STEPS, INPUTS), torch.randn(BATCH, HIDDEN)]


def get_init_inputs():
    return [INPUTS, HIDDEN]
