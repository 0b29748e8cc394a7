import os

from torch import nn

LINE = b"still at it\n" * 5_000


class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            os.write(2, LINE)
