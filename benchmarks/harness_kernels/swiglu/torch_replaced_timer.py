"""Wrong: replaces the function that says how much time lies between two events of the device."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.cuda.Event.elapsed_time = lambda begin, end: 0.001


class ModelNew(nn.Module):
    def forward(self, x):
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value
