"""Works on a stream of its own and does not join it: events on the default stream see nothing of it.

class: A5
expect: timing_mismatch | incorrect_values | nonfinite
problem: relu
device: cuda
stopped-by: two clocks
finding: streams
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = torch.cuda.Stream()

    def forward(self, x):
        out = torch.empty_like(x)
        with torch.cuda.stream(self.stream):
            for _ in range(20):
                torch.clamp(x, min=0, out=out)
        return out
