import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.columns = columns

    def forward(self, means, deviations):
        drawn = torch.randn(1, self.columns, dtype=means.dtype, device=means.device)
        return means + deviations * drawn
