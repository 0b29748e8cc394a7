import torch
import torch.nn as nn

N = 3072
COLUMNS = 4096
ALPHA = 3.0


class Model(nn.Module):
    """b = the x of tril(a) @ x = alpha * b; returns b itself. Above its diagonal a means nothing."""

    def forward(self, a, b, alpha):
        return b.copy_(torch.linalg.solve_triangular(a, alpha * b, upper=False))


def get_inputs():
    # A diagonal near two outweighs what is below it: solutions are no larger than right sides.
    a = torch.randn(N, N) * (0.5 / N**0.5) + 2 * torch.eye(N)
    return [a, torch.randn(N, COLUMNS), ALPHA]


def get_init_inputs():
    return []
