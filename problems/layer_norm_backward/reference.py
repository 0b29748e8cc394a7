import torch
import torch.nn as nn

M = 8192
N = 6000
EPS = 1e-5


class Model(nn.Module):
    """Gradients of (x, scale, shift) for the gradient that arrives; sums go along rows for the first, columns else."""

    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.eps = eps

    def forward(self, gradient, x):
        shape, bias = self.weight.shape, torch.zeros_like(self.weight)
        _, mean, reciprocal = torch.ops.aten.native_layer_norm(x, shape, self.weight, bias, self.eps)
        wanted = [True, True, True]
        return torch.ops.aten.native_layer_norm_backward(
            gradient, x, shape, mean, reciprocal, self.weight, bias, wanted
        )


def get_inputs():
    return [torch.randn(M, N), torch.randn(M, N) * (torch.rand(M, 1) + 0.5) + torch.randn(M, 1)]


def get_init_inputs():
    return [N, EPS]
