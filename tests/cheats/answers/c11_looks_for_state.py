"""Comes after the one that leaves marks, and fails if it finds one.

class: C11
expect: timed
problem: relu
stopped-by: isolation
"""

import os
from pathlib import Path

import torch
from torch import nn

MARK = "left-by-the-candidate-before"
PLACES = ("/tmp", "/dev/shm", "/var/tmp", "/candidate", "/channel", "/out", "/artifact", *os.environ.values(), ".")

found = [place for place in PLACES if "\0" not in place and len(place) < 255 and Path(place, MARK).exists()]
if found or torch.get_default_dtype() is not torch.float32:
    raise RuntimeError(f"the candidate before left its marks: {found}")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
