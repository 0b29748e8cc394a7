import torch
import torch.nn as nn

BATCH = 700
N = 120
COLUMNS = 72


class Model(nn.Module):
    """The x of tril(a) @ x = b; what a holds above its diagonal means nothing."""

    def forward(self, a, b):
        return torch.linalg.solve_triangular(a, b, upper=False)


def get_inputs():
    # A diagonal near two outweighs what is below it: solutions are no larger than right sides.
    a = torch.randn(BATCH, N, N) * (0.5 / N**0.5) + 2 * torch.eye(N)
    return [a, torch.randn(BATCH, N, COLUMNS)]


def get_init_inputs():
    return []
