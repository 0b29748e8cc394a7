import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """torch's own call of cublas<S|D>gemv."""

    def forward(self, a, x, y, alpha, beta):
        return y.addmv_(a, x, alpha=alpha, beta=beta)
