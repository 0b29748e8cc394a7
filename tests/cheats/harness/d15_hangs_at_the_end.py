"""Does its work, and will not go when it is over.

class: D15
expect: timed
problem: relu
stopped-by: limits
"""

import atexit
import signal
import time

import torch
from torch import nn

signal.signal(signal.SIGTERM, signal.SIG_IGN)
atexit.register(time.sleep, 600)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
