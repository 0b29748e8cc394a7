import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 48
IN = 8192
OUT = 14336
GROUP = 128


class Model(nn.Module):
    """x @ weight.T without any rounding: what a product with quantised weights is held against."""

    def __init__(self, features_in, features_out, group):
        super().__init__()
        # The weights of a group lie about a number of their own, not about zero: half of the steps that are the same
        # on both sides of zero would be for weights that do not exist.
        middles = 6 * torch.randn(features_out, features_in // group, 1).sign()
        weight = torch.randn(features_out, features_in // group, group) + middles
        sizes = 1000 ** (torch.rand(features_out, 1) - 1)
        self.weight = nn.Parameter(weight.reshape(features_out, features_in) * sizes)

    def forward(self, x):
        return F.linear(x, self.weight)


def get_inputs():
    return [torch.randn(BATCH, IN) * 1000 ** torch.rand(BATCH, 1) / IN**0.5]


def get_init_inputs():
    return [IN, OUT, GROUP]
