import torch
import torch.nn as nn

TOKENS = 8192
KV_HEADS = 8
WIDTH = 128
BLOCKS = 2048
BLOCK = 16
TOGETHER = 8
"""Elements of a key that lie side by side in the cache."""


class Model(nn.Module):
    """(key_cache, value_cache), the inputs themselves, with token t written at place slots[t], counted over blocks.

    key, value: (tokens, kv_heads, width). key_cache: (blocks, kv_heads, width / together, block, together).
    value_cache: (blocks, kv_heads, width, block). No slot is named twice.
    """

    def forward(self, key, value, key_cache, value_cache, slots):
        size = value_cache.shape[3]
        block, place = slots // size, slots % size
        key_cache[block, :, :, place] = key.unflatten(-1, (-1, key_cache.shape[4]))
        value_cache[block, :, :, place] = value
        return key_cache, value_cache


def get_inputs():
    key = torch.randn(TOKENS, KV_HEADS, WIDTH)
    value = torch.randn(TOKENS, KV_HEADS, WIDTH)
    key_cache = torch.randn(BLOCKS, KV_HEADS, WIDTH // TOGETHER, BLOCK, TOGETHER)
    value_cache = torch.randn(BLOCKS, KV_HEADS, WIDTH, BLOCK)
    return [key, value, key_cache, value_cache, torch.randperm(BLOCKS * BLOCK)[:TOKENS].clone()]


def get_init_inputs():
    return []
