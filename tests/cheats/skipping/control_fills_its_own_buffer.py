"""Honest: looks at what its new output memory holds, and writes zeros over it if it is not a number.

class: control
problem: long_matmul
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
        if bool(torch.isnan(out[0, 0])):
            out.zero_()
        return out.addmm_(a, b, beta=0)
