import torch
import torch.nn as nn

SEQUENCES = 32
HEADS = 32
KV_HEADS = 8
WIDTH = 128
BLOCK = 16
LONGEST = 2048
STEP = 33
"""Tokens by which lengths differ: the n-th longest sequence has LONGEST - n * STEP."""


class Model(nn.Module):
    """Attention of (sequences, heads, width) queries, a group of heads sharing one of the keys' heads.

    Token t of sequence s is at place t % block of block tables[s, t // block] of both caches, which are
    (blocks, block, kv_heads, width). Only the first lengths[s] tokens count.
    """

    def forward(self, query, key_cache, value_cache, tables, lengths, scale):
        sequences, heads, width = query.shape
        keys = key_cache[tables.long()].flatten(1, 2)
        values = value_cache[tables.long()].flatten(1, 2)
        groups = query.view(sequences, keys.shape[2], -1, width)
        scores = torch.einsum("sghw,stgw->sght", groups, keys) * scale
        beyond = torch.arange(keys.shape[1], device=query.device) >= lengths.unsqueeze(1)
        chances = torch.softmax(scores.masked_fill(beyond[:, None, None], float("-inf")), dim=-1)
        return torch.einsum("sght,stgw->sghw", chances, values).reshape(sequences, heads, width)


def get_inputs():
    blocks = -(-LONGEST // BLOCK)
    cache = (SEQUENCES * blocks, BLOCK, KV_HEADS, WIDTH)
    tables = torch.randperm(SEQUENCES * blocks).view(SEQUENCES, blocks).int()
    lengths = (LONGEST - STEP * torch.randperm(SEQUENCES)).int()
    query = torch.randn(SEQUENCES, HEADS, WIDTH)
    return [query, torch.randn(cache), torch.randn(cache), tables, lengths, WIDTH**-0.5]


def get_init_inputs():
    return []
