"""Packs nine tenths of the time that was measured: too small a lie to be seen by a coarse clock.
A verdict does not rest on what is claimed, so it gains nothing where it is not seen.

class: A2
expect: timing_mismatch | timed
earns: 1
problem: relu
device: cuda
stopped-by: two clocks
finding: timing
"""

import torch
from torch import nn

from kernel_matrix.inside import wire


def claims_nine_tenths(device_ns):
    return (device_ns * 9 // 10).to_bytes(8, "little")


wire.pack_done.__code__ = claims_nine_tenths.__code__


class ModelNew(nn.Module):
    def forward(self, x):
        for _ in range(4):
            out = torch.relu(x)
        return out
