"""Takes the host's memory until something stops it.

class: D15
expect: out_of_memory | timeout
problem: relu
stopped-by: limits
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        hoard = [bytearray(b"1") * (256 << 20) for _ in range(256)]
        return torch.relu(x) + 0 * len(hoard)
