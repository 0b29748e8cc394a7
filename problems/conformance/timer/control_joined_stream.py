"""Honest: half of the work on a stream of its own, joined before it returns.

class: control
problem: relu
device: cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = torch.cuda.Stream()

    def forward(self, x):
        half = x.shape[0] // 2
        out = torch.empty_like(x)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            torch.clamp(x[:half], min=0, out=out[:half])
        torch.clamp(x[half:], min=0, out=out[half:])
        torch.cuda.current_stream().wait_stream(self.stream)
        return out
