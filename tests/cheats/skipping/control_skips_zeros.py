"""Honest: leaves out of the sums what is zero because the factors are triangular.

class: control
problem: triangular_product
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.zeros_like(a)
        step = max(a.shape[0] // 8, 1)
        for start in range(0, a.shape[0], step):
            rows = a[start : start + step, : start + step]
            out[start : start + step, : start + step] = rows @ b[: start + step, : start + step]
        return out
