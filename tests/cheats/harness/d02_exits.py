"""Ends its process with the exit code of success, so that no further check can be made.

class: D2
expect: crashed
problem: relu
stopped-by: wire
"""

import os

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        os._exit(0)
