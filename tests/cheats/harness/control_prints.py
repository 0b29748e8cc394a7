"""Honest: prints more than anybody wants to read, some of which looks like a report.

class: control
problem: relu
"""

import sys

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        sys.stdout.write('{"status": "incorrect_values"}\n' * 100)
        sys.stderr.write("Traceback (most recent call last): nothing happened\n")
        return torch.relu(x)
