"""Honest: works on so much scratch memory behind its output that this is in no cache when it is handed over.

class: control
problem: long_matmul
"""

import torch
from torch import nn

SCRATCH_BYTES = 16 << 20


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scratch = torch.zeros(SCRATCH_BYTES // 4)

    def forward(self, a, b):
        out = a @ b
        self.scratch = self.scratch.to(a.device).add_(1)
        return out
