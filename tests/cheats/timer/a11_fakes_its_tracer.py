"""Has the tracer of its own process report a kernel that never ran: what ran is a claim, and the source says otherwise.

class: A11
expect: timed | no_own_kernel
problem: relu
language: triton
stopped-by: nothing
finding: decoy
"""

import torch
import triton
import triton.language as tl
from torch import nn

from kernel_matrix.inside.worker import service


@triton.jit
def relu_kernel(x, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + at, tl.maximum(tl.load(x + at, mask=at < n), 0.0), mask=at < n)


service.trace = lambda function, _platform: (function(), [("relu_kernel", 1, 1_000)])


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0)
