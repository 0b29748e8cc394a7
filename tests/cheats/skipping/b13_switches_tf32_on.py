"""Switches TF32 on for its products where single precision is asked for.

class: B13
expect: incorrect_values
problem: matmul
device: cuda
stopped-by: values
finding: precision
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        torch.backends.cuda.matmul.allow_tf32 = True
        return a @ b
