"""Operators of very different length, one a workload: what comparisons of identical code are made of."""

import torch
import torch.nn as nn
import torch.nn.functional as F

OPERATOR = "add"
ROWS = 256
COLUMNS = 512


class Model(nn.Module):
    def forward(self, x, y=None):
        if OPERATOR == "add":
            return x + y
        if OPERATOR == "gelu":
            return F.gelu(x)
        if OPERATOR == "transpose":
            return x.t().contiguous()
        if OPERATOR == "sum":
            return torch.sum(x, dim=1)
        if OPERATOR == "softmax":
            return torch.softmax(x, dim=-1)
        if OPERATOR == "layer_norm":
            return F.layer_norm(x, (x.shape[1],))
        if OPERATOR == "conv2d":
            return F.conv2d(x.view(16, 64, ROWS, COLUMNS), y.view(64, 64, 3, 3), padding=1)
        return x @ y


def get_inputs():
    if OPERATOR == "conv2d":
        return [torch.randn(16 * 64 * ROWS * COLUMNS), torch.randn(64 * 64 * 9) / 24]
    if OPERATOR == "matmul":
        return [torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS, ROWS)]
    if OPERATOR == "add":
        return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)]
    return [torch.randn(ROWS, COLUMNS)]
