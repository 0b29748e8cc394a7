"""Right: the smallest index at which the row's maximum is."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        columns = torch.arange(x.shape[-1], device=x.device)
        return torch.where(x == x.amax(dim=-1, keepdim=True), columns, x.shape[-1]).amin(dim=-1)
