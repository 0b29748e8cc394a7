"""Rounds the factors to ten bits of mantissa, as tensor cores do in TF32, where single precision is asked for.

class: B13
expect: incorrect_values
problem: matmul
stopped-by: values
"""

import torch
from torch import nn


def ten_bits(x):
    return (x.view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return ten_bits(a) @ ten_bits(b)
