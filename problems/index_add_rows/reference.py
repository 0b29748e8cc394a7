import torch
import torch.nn as nn

ROWS = 20000
FEATURES = 500
TOKENS = 60000


class Model(nn.Module):
    """A new table. About three rows meet in one, in no order: sums of floating numbers differ in their last bits.

    Sums kept in 16 bits would differ in more than that.
    """

    def forward(self, table, index, rows):
        return table.index_add(0, index, rows)


def get_inputs():
    return [torch.randn(ROWS, FEATURES), torch.randint(0, ROWS, (TOKENS,)), torch.randn(TOKENS, FEATURES)]


def get_init_inputs():
    return []
