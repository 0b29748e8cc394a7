"""Changes numbers that Python shares, as if a tolerance of the checker's could be among them, and returns zeros.

class: D10
expect: incorrect_values | crashed | runtime_error | load_error
problem: relu
stopped-by: isolation
finding: frames
"""

import ctypes

import torch
from torch import nn

for number in (1e-2, 1e-3, 1e-4, 1e-5):
    ctypes.memmove(id(number) + 16, (ctypes.c_double * 1)(1e30), 8)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
