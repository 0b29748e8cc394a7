"""A problem and a Triton kernel for it, to be compiled where there is no GPU."""

KERNEL = """
import torch, torch.nn as nn, triton, triton.language as tl

@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)
"""

PROBLEM = """
import torch, torch.nn as nn
N = 1000
class Model(nn.Module):
    def forward(self, x):
        return x * 2
def get_inputs():
    return [torch.rand(N)]
def get_init_inputs():
    return []
"""
