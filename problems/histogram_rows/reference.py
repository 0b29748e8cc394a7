import torch
import torch.nn as nn

ROWS = 4000
LENGTH = 2500
BINS = 300


class Model(nn.Module):
    """(ROWS, BINS) of int64; small numbers are the more frequent. Nothing here is in the cell's dtype."""

    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, numbers):
        counts = numbers.new_zeros(numbers.shape[0], self.bins)
        return counts.scatter_add_(1, numbers, torch.ones_like(numbers))


def get_inputs():
    return [(torch.rand(ROWS, LENGTH).square() * BINS).long().clamp(max=BINS - 1)]


def get_init_inputs():
    return [BINS]
