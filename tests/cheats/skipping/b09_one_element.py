"""One element of the output is wrong.

class: B9
expect: incorrect_values
problem: relu
stopped-by: values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.relu(x)
        out.view(-1)[out.numel() // 2] += 0.5
        return out
