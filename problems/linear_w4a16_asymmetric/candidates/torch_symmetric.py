import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out, group):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features_out, features_in))
        self.group = group

    def forward(self, x):
        groups = self.weight.float().reshape(self.weight.shape[0], -1, self.group)
        scale = groups.abs().amax(dim=-1, keepdim=True).clamp_min(1e-30) / 7
        return x @ (torch.round(groups / scale) * scale).reshape(self.weight.shape).to(x.dtype).T
