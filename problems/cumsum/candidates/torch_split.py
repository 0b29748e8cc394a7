import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        wide = x.double() if x.is_floating_point() else x.long()
        left, right = wide.tensor_split(2, dim=-1)
        left = left.cumsum(-1)
        sums = torch.cat([left, right.cumsum(-1) + left[..., -1:]], dim=-1)
        return sums.to(x.dtype) if x.is_floating_point() else sums
