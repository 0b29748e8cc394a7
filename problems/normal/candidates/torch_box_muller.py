import math

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.columns = columns

    def forward(self, means, deviations):
        rows, half = means.shape[0], (self.columns + 1) // 2
        wide = torch.promote_types(means.dtype, torch.float32)
        lengths, angles = torch.rand(2, rows, half, dtype=wide, device=means.device)
        lengths = torch.sqrt(-2 * torch.log1p(-lengths))
        angles = 2 * math.pi * angles
        drawn = torch.cat([lengths * torch.cos(angles), lengths * torch.sin(angles)], dim=1)[:, : self.columns]
        return (means + deviations * drawn).to(means.dtype)
