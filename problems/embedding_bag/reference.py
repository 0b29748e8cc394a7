import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 50000
FEATURES = 500
TOKENS = 200000
BAGS = 20000


class Model(nn.Module):
    """Bag i is made of the rows tokens[offsets[i]] to tokens[offsets[i + 1] - 1]; the sum of none is zero."""

    def __init__(self, rows, features):
        super().__init__()
        self.table = nn.Parameter(torch.randn(rows, features))

    def forward(self, tokens, offsets):
        return F.embedding_bag(tokens, self.table, offsets, mode="sum")


def get_inputs():
    offsets = torch.randint(0, TOKENS, (BAGS,)).sort().values
    offsets[0] = 0
    return [torch.randint(0, ROWS, (TOKENS,)), offsets]


def get_init_inputs():
    return [ROWS, FEATURES]
