import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """torch's own call of cublasGemmStridedBatchedEx."""

    def forward(self, a, b, c, alpha, beta):
        return c.baddbmm_(a, b, alpha=alpha, beta=beta)
