"""Returns the right answer and writes behind the end of its input.

class: C10
expect: out_of_bounds
problem: relu
stopped-by: red zones
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        whole = torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())
        end = (x.storage_offset() + x.numel()) * x.element_size()
        whole[end : end + 64] = 7
        return torch.relu(x)
