"""Says it is written in Triton and calls the library.

class: B14
expect: no_own_kernel
problem: softmax
language: triton
stopped-by: own kernel
finding: library_calls
"""

import torch
import triton  # noqa: F401  # the only trace of Triton
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
