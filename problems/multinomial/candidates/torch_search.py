import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, drawn):
        super().__init__()
        self.drawn = drawn

    def forward(self, weights):
        sums = weights.double().cumsum(1)
        drawn = torch.rand(len(weights), self.drawn, dtype=sums.dtype, device=weights.device) * sums[:, -1:]
        return torch.searchsorted(sums, drawn, right=True).clamp_(max=weights.shape[1] - 1)
