import torch
import torch.nn as nn

N = 70000000


class Model(nn.Module):
    """Horner's scheme; the coefficients come with the highest power first."""

    def __init__(self, coefficients):
        super().__init__()
        self.coefficients = coefficients

    def forward(self, x):
        result = torch.full_like(x, self.coefficients[0])
        for coefficient in self.coefficients[1:]:
            result = result * x + coefficient
        return result


def get_inputs():
    return [torch.rand(N) * 2 - 1]


def get_init_inputs():
    return [[2, -3, 5, 1, -4, 2, 1]]
