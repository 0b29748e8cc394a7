import torch
import torch.nn as nn
import torch.nn.functional as F


def quantize(blocks):
    """Whole numbers from -127 to 127, and a scale for each block along the first dimension."""
    scale = blocks.float().abs().amax(dim=(1, 2, 3), keepdim=True).clamp_min(1e-30) / 127
    return torch.round(blocks.float() / scale), scale


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, 3, 3))

    def forward(self, x):
        image, image_scale = quantize(x)
        weight, weight_scale = quantize(self.weight)
        total = F.conv2d(image, weight, padding=1)
        return (total * image_scale * weight_scale.reshape(1, -1, 1, 1)).to(x.dtype)
