"""Right: the larger of three columns, then of three rows, of an input that is padded with minus infinity."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        height, width = (x.shape[2] + 1) // 2, (x.shape[3] + 1) // 2
        x = F.pad(x, (1, 2, 1, 2), value=float("-inf"))
        for dim, size in ((3, width), (2, height)):
            first, second, third = (x.narrow(dim, at, x.shape[dim] - 2) for at in range(3))
            x = torch.maximum(torch.maximum(first, second), third)
            x = x.index_select(dim, torch.arange(0, 2 * size, 2, device=x.device))
        return x
