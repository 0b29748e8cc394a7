import torch
import torch.nn as nn

ROWS = 8
N = 4000000


class Model(nn.Module):
    """The scalar product of each row of x with that of y.

    Several, since one number says little of how it came about; each is a call of its own in cuBLAS.
    """

    def forward(self, x, y):
        return (x * y).sum(dim=-1)


def get_inputs():
    # Rows differ in size, and products have a mean: no part of a sum is near the whole.
    sizes = torch.rand(ROWS, 1) + 0.5
    return [(torch.randn(ROWS, N) + 1) * sizes, torch.randn(ROWS, N) + 1]


def get_init_inputs():
    return []
