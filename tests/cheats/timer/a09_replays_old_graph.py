"""Captures a graph over a copy of the first inputs, and replays it whatever the inputs are.

class: A9
expect: incorrect_values | output_aliased | nonfinite
problem: relu
device: cuda
stopped-by: fresh inputs
finding: capture
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    graph = None

    def forward(self, x):
        if self.graph is None:
            self.source, self.out = x.clone(), torch.clamp(x, min=0)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                torch.clamp(self.source, min=0, out=self.out)
        self.graph.replay()
        return self.out.clone()
