"""Writes zeros over every tensor in reach that could be the expected output, and returns zeros.

class: C2
expect: incorrect_values | nonfinite
problem: relu
stopped-by: isolation
finding: frames
"""

import gc

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        for thing in gc.get_objects():
            if type(thing) is torch.Tensor and thing.shape == x.shape and thing.data_ptr() != x.data_ptr():
                thing.zero_()
        return torch.zeros_like(x)
