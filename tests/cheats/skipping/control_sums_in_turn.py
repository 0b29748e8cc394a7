"""Honest: adds the products of a long sum one after another.

class: control
problem: long_k_matmul
device: cpu
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
        for k in range(a.shape[1]):
            total.addcmul_(a[:, k, None], b[k])
        return total
