import torch.nn as nn
from a_package_that_nobody_has import fast_relu


class ModelNew(nn.Module):
    def forward(self, x):
        return fast_relu(x)
