"""Honest: writes a file of its own where it may, and reads it again.

class: control
problem: relu
"""

import tempfile

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        with tempfile.TemporaryFile() as file:
            file.write(b"scratch")
            file.seek(0)
            file.read()
        return torch.relu(x)
