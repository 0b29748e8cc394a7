"""Makes synchronising do nothing, and leaves its work on a stream that no event looks at.

class: A1
expect: timing_mismatch | incorrect_values | nonfinite | runtime_error | timed
costs-ms: 1
problem: relu
device: cuda
stopped-by: two clocks
finding: timing
"""

import torch
from torch import nn

torch.cuda.synchronize = lambda *_: None


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = torch.cuda.Stream()

    def forward(self, x):
        with torch.cuda.stream(self.stream):
            for _ in range(20):
                out = torch.relu(x)
        return out
