"""Fills every place it can write to.

class: D15
expect: runtime_error | crashed | out_of_memory
problem: relu
stopped-by: limits
"""

from pathlib import Path

import torch
from torch import nn

CHUNK = bytes(8 << 20)


class ModelNew(nn.Module):
    def forward(self, x):
        for number in range(1024):
            Path(f"/tmp/full-{number}").write_bytes(CHUNK)
        return torch.relu(x)
