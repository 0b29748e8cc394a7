import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        wide = torch.bfloat16 if a.dtype.itemsize == 1 else a.dtype
        return a.to(wide) @ b.to(wide)
