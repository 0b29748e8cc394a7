import torch
import torch.nn as nn

ROWS = 500000
SEGMENTS = 100000
FEATURES = 200


class Model(nn.Module):
    """Row s of the result is the sum of values[offsets[s] : offsets[s + 1]], zeros where there is none."""

    def forward(self, values, offsets):
        return torch.segment_reduce(values, "sum", offsets=offsets, axis=0, initial=0)


def get_inputs():
    inner = torch.randint(0, ROWS + 1, (SEGMENTS - 1,)).sort().values
    offsets = torch.cat([torch.tensor([0]), inner, torch.tensor([ROWS])])
    return [torch.randn(ROWS, FEATURES), offsets]


def get_init_inputs():
    return []
