"""Returns the same memory from every call: right now, and overwritten while its first reader may still hold it.

class: B7
expect: output_aliased
problem: relu
stopped-by: aliasing
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    out = None

    def forward(self, x):
        if self.out is None or self.out.shape != x.shape:
            self.out = torch.empty_like(x)
        return torch.clamp(x, min=0, out=self.out)
