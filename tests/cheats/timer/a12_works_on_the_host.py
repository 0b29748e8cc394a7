"""Does part of its work on the host, where no kernel can be seen: the window holds it all the same.

class: A12
expect: timed
costs-ms: 4
problem: relu
stopped-by: nothing
"""

import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        time.sleep(0.005)
        out = torch.relu(x)
        out[:1] = x[:1].cpu().clamp(min=0).to(x.device)
        return out
