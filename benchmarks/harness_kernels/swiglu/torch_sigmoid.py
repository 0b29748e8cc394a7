"""Right: the gate as a product with its sigmoid."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        gate, value = x.tensor_split(2, dim=-1)
        return gate * torch.sigmoid(gate) * value
