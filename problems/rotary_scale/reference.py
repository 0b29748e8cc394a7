import torch
import torch.nn as nn

BATCH = 4
LENGTH = 4096
HEADS = 32
SHARED = 8  # heads of keys
HALF = 64  # half the width of a head


def rotate(x, cosine, sine):
    """Feature i of a head and feature i + HALF turned as a pair, by the angle of its position."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], dim=-1)


class Model(nn.Module):
    """(queries turned and divided by the root of their width, keys turned), all (batch, length, heads, width)."""

    def forward(self, q, k, cosine, sine):
        cosine, sine = cosine[:, None], sine[:, None]
        return rotate(q, cosine, sine) * q.shape[-1] ** -0.5, rotate(k, cosine, sine)


def get_inputs():
    q, k = torch.randn(BATCH, LENGTH, HEADS, 2 * HALF), torch.randn(BATCH, LENGTH, SHARED, 2 * HALF)
    angles = torch.rand(LENGTH, HALF) * 6.25
    return [q, k, angles.cos(), angles.sin()]


def get_init_inputs():
    return []
