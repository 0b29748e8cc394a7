from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return 2 * x
