"""Puts another code object into the function that packs the claimed time: identity and name stay as they were.

class: A2
expect: timing_mismatch
problem: relu
stopped-by: two clocks
finding: timing
"""

import time

import torch
from torch import nn

from kernel_matrix.inside import wire


def claims_a_microsecond(device_ns):
    return (1_000).to_bytes(8, "little")


wire.pack_done.__code__ = claims_a_microsecond.__code__


class ModelNew(nn.Module):
    def forward(self, x):
        time.sleep(0.05)
        return torch.relu(x)
