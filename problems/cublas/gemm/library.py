import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """torch's own call of cublasGemmEx, or of cuBLASLt."""

    def forward(self, a, b, c, alpha, beta):
        return c.addmm_(a, b, alpha=alpha, beta=beta)
