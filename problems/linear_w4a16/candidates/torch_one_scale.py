import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features_out, features_in))

    def forward(self, x):
        scale = self.weight.abs().max() / 7
        return x @ (torch.round(self.weight / scale).clamp(-7, 7) * scale).T
