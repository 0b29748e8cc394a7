"""Leaves out the diagonal of a triangular factor, which is not zero.

class: B9
expect: incorrect_values
problem: triangular_product
stopped-by: values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.tril(torch.tril(a, -1) @ b)
