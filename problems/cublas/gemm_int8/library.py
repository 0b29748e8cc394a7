import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """torch's own call of cuBLASLt, with sums in 32 bits."""

    def forward(self, a, b):
        return torch._int_mm(a, b)
