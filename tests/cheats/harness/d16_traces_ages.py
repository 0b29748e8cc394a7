"""Has its tracer report 256 kernels of 2⁶³ − 1 ns each, launched 2³² − 1 times, whose sums no field can hold.

class: D16
expect: timed | protocol_violation | timing_mismatch | no_own_kernel
problem: relu
language: triton
stopped-by: wire
finding: decoy
"""

import torch
import triton
import triton.language as tl
from torch import nn

from kernel_matrix.inside.worker import service

VAST = ("relu_kernel", (1 << 32) - 1, (1 << 63) - 1)


@triton.jit
def relu_kernel(x, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + at, tl.maximum(tl.load(x + at, mask=at < n), 0.0), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0)


def traced(function, *_platform):
    return function(), [VAST] * 256


service.trace = traced
