"""Wrong: pads with zeros, which are larger than the elements of some windows at the border."""

import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        return F.max_pool2d(F.pad(x, (1, 1, 1, 1)), kernel_size=3, stride=2)
