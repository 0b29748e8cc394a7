import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

HEADS = 16
LENGTH = 2048
WIDTH = 128


class Model(nn.Module):
    """Attention of this rank's tokens to those of all ranks: keys and values are gathered."""

    def forward(self, q, k, v):
        ranks = dist.get_world_size()
        mine = torch.stack([k, v])
        every = mine.new_empty(ranks * 2, *k.shape)
        dist.all_gather_into_tensor(every, mine)
        keys, values = every.view(ranks, 2, *k.shape).permute(1, 2, 0, 3, 4).flatten(2, 3).unbind(0)
        return F.scaled_dot_product_attention(q[None], keys[None], values[None])[0]


def get_inputs():
    return [torch.randn(HEADS, LENGTH, WIDTH) for _ in range(3)]
