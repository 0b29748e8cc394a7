import torch
import torch.nn as nn

N = 30000000
COSINE = 0.8
SINE = 0.6


class Model(nn.Module):
    """(x, y) = (c * x + s * y, c * y - s * x); returns both themselves."""

    def forward(self, x, y, cosine, sine):
        turned = cosine * x + sine * y
        y.mul_(cosine).sub_(x, alpha=sine)
        return x.copy_(turned), y


def get_inputs():
    return [torch.randn(N), torch.randn(N), COSINE, SINE]


def get_init_inputs():
    return []
