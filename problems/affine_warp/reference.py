import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32
CHANNELS = 48
HEIGHT = 96
WIDTH = 100


class Model(nn.Module):
    """Pixel (x, y) of the output, both from -1 to 1, is read at matrix @ (x, y, 1); beyond the border is the border."""

    def forward(self, images, matrices):
        grid = F.affine_grid(matrices, images.shape, align_corners=False)
        return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def get_inputs():
    matrices = torch.eye(2, 3) + torch.randn(BATCH, 2, 3) * 0.3
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH), matrices]


def get_init_inputs():
    return []
