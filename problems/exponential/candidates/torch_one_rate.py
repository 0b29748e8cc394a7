import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, rates):
        return torch.log1p(-torch.rand_like(rates)).neg() / rates.mean()
