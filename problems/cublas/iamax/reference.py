import torch
import torch.nn as nn

ROWS = 8
N = 8000000


class Model(nn.Module):
    """Where the largest absolute value of each row is, as int32, counted from 1.

    Several, since one number says little of how it came about; each is a call of its own in cuBLAS.
    """

    def forward(self, x):
        return x.abs().argmax(dim=-1).int() + 1


def get_inputs():
    # One element of a row is larger than all others can be: which of two equal ones is meant is never the question.
    x = 2 * torch.rand(ROWS, N) - 1
    signs = 1.0 - 2 * torch.randint(2, (ROWS, 1))
    return [x.scatter(1, torch.randint(N, (ROWS, 1)), (1.1 + torch.rand(ROWS, 1)) * signs)]


def get_init_inputs():
    return []
