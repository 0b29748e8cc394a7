import torch
import torch.nn as nn

TOKENS = 65536
ROWS = 32768
FEATURES = 1024


class Model(nn.Module):
    """table[indices]."""

    def __init__(self, rows, features):
        super().__init__()
        self.table = nn.Embedding(rows, features)

    def forward(self, indices):
        return self.table(indices)


def get_inputs():
    return [torch.randint(0, ROWS, (TOKENS,))]


def get_init_inputs():
    return [ROWS, FEATURES]
