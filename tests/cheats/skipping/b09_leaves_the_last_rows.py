"""Leaves out the last of its rows, as if a share of elements did not matter.

class: B9
expect: incorrect_values | nonfinite
problem: softmax
stopped-by: values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        rows = x.flatten(0, -2)
        out = torch.zeros_like(rows)
        done = rows.shape[0] - max(1, rows.shape[0] // 100)
        out[:done] = torch.softmax(rows[:done], dim=-1)
        return out.view_as(x)
