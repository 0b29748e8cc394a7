import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1)

    def forward(self, x):
        weight = self.conv.weight.flatten(1)
        windows = F.unfold(x, kernel_size=3, padding=1)
        out = weight @ windows + self.conv.bias[:, None]
        return out.view(x.shape[0], weight.shape[0], *x.shape[2:])
