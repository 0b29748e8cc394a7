import torch
import torch.nn as nn

BATCH = 8
TOKENS = 600
IN_FEATURES = 2000
OUT_FEATURES = 3000


class Model(nn.Module):
    """x @ weight.T + bias."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(BATCH, TOKENS, IN_FEATURES)]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES]
