import torch
import torch.nn as nn

N = 3072
COLUMNS = 4096
ALPHA = 3.0


class Model(nn.Module):
    """alpha * tril(a) @ b, in new memory. Above its diagonal a means nothing."""

    def forward(self, a, b, alpha):
        return alpha * (a.tril() @ b)


def get_inputs():
    return [torch.randn(N, N), torch.randn(N, COLUMNS), ALPHA]


def get_init_inputs():
    return []
