import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """torch's own call of cublas<S|D>dot, row by row."""

    def forward(self, x, y):
        out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        for row, other, place in zip(x, y, out):
            torch.dot(row, other, out=place)
        return out
