import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8
CHANNELS = 32
HEIGHT = 120
WIDTH = 160
SHIFTS = 24


class Model(nn.Module):
    """(BATCH, SHIFTS, HEIGHT, WIDTH): at shift d and column x, left at x times right at x - d; zero where x < d."""

    def __init__(self, shifts):
        super().__init__()
        self.shifts = shifts

    def forward(self, left, right):
        width = left.shape[-1]
        rows = [
            F.pad((left[..., shift:] * right[..., : width - shift]).sum(dim=1), (shift, 0))
            for shift in range(self.shifts)
        ]
        return torch.stack(rows, dim=1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH), torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [SHIFTS]
