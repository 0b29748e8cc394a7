"""Honest: leaves tensors behind that hold each other, and collects garbage.

class: control
problem: softmax
"""

import gc

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        gc.collect()

    def forward(self, x):
        e = torch.exp(x - x.amax(dim=-1, keepdim=True))
        parts = [e, e.clone(), e.sum(dim=-1, keepdim=True)]
        parts.append(parts)
        return parts[1] / parts[2]
