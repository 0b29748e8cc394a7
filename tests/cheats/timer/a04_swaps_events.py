"""Finds the timer's events up the stack and records the first one again when the work is over.

class: A4
expect: timing_mismatch | timed
costs-ms: 1
problem: relu
device: cuda
stopped-by: two clocks
finding: frames
"""

import sys

import torch
from torch import nn


def events_above():
    """Every event that a caller holds in a local variable."""
    frame = sys._getframe(1)
    while frame is not None:
        yield from (value for value in frame.f_locals.values() if isinstance(value, torch.cuda.Event))
        frame = frame.f_back


class ModelNew(nn.Module):
    def forward(self, x):
        for _ in range(20):
            out = torch.relu(x)
        for event in events_above():
            event.record()
        return out
