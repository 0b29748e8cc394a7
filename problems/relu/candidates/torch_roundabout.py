import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        wide = x.double()
        return ((wide + wide.abs()) / 2).to(x.dtype)
