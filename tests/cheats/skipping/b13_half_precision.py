"""Multiplies in bfloat16 where single precision is asked for.

class: B13
expect: incorrect_values
problem: matmul
stopped-by: values
finding: precision
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return (a.bfloat16() @ b.bfloat16()).to(a.dtype)
