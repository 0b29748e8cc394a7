import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, w):
        return x @ w.T
