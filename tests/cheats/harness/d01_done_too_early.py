"""Says that it is done, and only then does the work, before it hands the output over.
In a batch it sleeps once for each call, which may take longer than a call may.

class: D1
expect: timing_mismatch | timeout
problem: relu
stopped-by: two clocks
finding: timing
"""

import time

import torch
from torch import nn

from kernel_matrix.inside.wire import Channel, FrameKind

owed = []
send = Channel.send


def send_and_work(self, kind, *arguments, **options):
    send(self, kind, *arguments, **options)
    while kind is FrameKind.DONE and owed:
        out, x = owed.pop()
        time.sleep(0.05)
        out.copy_(torch.relu(x))


Channel.send = send_and_work


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        owed.append((out, x))
        return out
