"""Takes the device's memory until there is none.

class: D15
expect: out_of_memory
problem: relu
device: cuda
stopped-by: limits
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        hoard = [torch.empty(4 << 30, dtype=torch.uint8, device=x.device) for _ in range(4096)]
        return torch.relu(x) + 0 * len(hoard)
