"""Looks through every frame and every object for a tensor that could be the expected output.

class: C1
expect: incorrect_values
problem: relu
stopped-by: isolation
finding: frames
"""

import gc
import sys

import torch
from torch import nn


def held_by_callers():
    frame = sys._getframe(2)
    while frame is not None:
        yield from frame.f_locals.values()
        frame = frame.f_back


def tensors(x):
    """Tensors that somebody holds, look like the output, and are not the input."""
    for thing in (*held_by_callers(), *gc.get_objects()):
        if type(thing) is torch.Tensor and thing.shape == x.shape and thing.data_ptr() != x.data_ptr():
            yield thing


class ModelNew(nn.Module):
    def forward(self, x):
        fitting = (t for t in tensors(x) if bool((t >= 0).all()) and bool(t.any()))
        found = next(fitting, None)
        return torch.zeros_like(x) if found is None else found.clone()
