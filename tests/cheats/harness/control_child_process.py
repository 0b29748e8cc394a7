"""Honest: asks another program something once, and waits for it to end.

class: control
problem: relu
"""

import subprocess
import sys

import torch
from torch import nn

subprocess.run((sys.executable, "-I", "-S", "-c", ""), check=True)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
