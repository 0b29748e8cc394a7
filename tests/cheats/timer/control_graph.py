"""Honest: replays a graph into which each call's inputs are copied, and returns a copy of what came out.

class: control
problem: relu
device: cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    graph = None

    def forward(self, x):
        if torch.cuda.is_current_stream_capturing():
            return torch.relu(x)
        if self.graph is None or self.source.shape != x.shape:
            self.source = x.clone()
            torch.relu(self.source)  # what a first call loads cannot be loaded in a capture
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = torch.relu(self.source)
        self.source.copy_(x)
        self.graph.replay()
        return self.out.clone()
