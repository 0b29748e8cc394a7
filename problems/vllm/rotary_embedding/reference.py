import torch
import torch.nn as nn

TOKENS = 8192
HEADS = 32
KV_HEADS = 8
WIDTH = 128
POSITIONS = 32768
BASE = 10000.0


class Model(nn.Module):
    """(query, key), the inputs themselves, each head turned by its token's angles.

    cos_sin[p] holds the cosines for position p in its first half and the sines in its second. Element i of a head and
    element i + width / 2 are a pair.
    """

    def forward(self, positions, query, key, cos_sin, width):
        cos, sin = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)
        for rows in (query, key):
            heads = rows.view(rows.shape[0], -1, width)
            first, second = heads.chunk(2, dim=-1)
            heads.copy_(torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1))
        return query, key


def get_inputs():
    # With phases of their own, so that angles are not to be had from positions alone.
    speeds = BASE ** (-torch.arange(0, WIDTH, 2) / WIDTH)
    angles = torch.arange(POSITIONS).unsqueeze(1) * speeds + 6.28 * torch.rand(WIDTH // 2)
    query = torch.randn(TOKENS, HEADS * WIDTH)
    key = torch.randn(TOKENS, KV_HEADS * WIDTH)
    positions = torch.randint(POSITIONS, (TOKENS,))
    return [positions, query, key, torch.cat((angles.cos(), angles.sin()), dim=-1), WIDTH]


def get_init_inputs():
    return []
