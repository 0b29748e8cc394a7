import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.columns = columns

    def forward(self, lows, widths):
        drawn = torch.rand(lows.shape[0], self.columns, dtype=lows.dtype, device=lows.device)
        return lows + widths * (0.1 + 0.8 * drawn)
