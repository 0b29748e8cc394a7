import torch
import torch.nn as nn

TOKENS = 16384
LATENT = 512
ROTARY = 64
BLOCKS = 1024
BLOCK = 64


class Model(nn.Module):
    """cache, the input itself, with (latent[t], rotary[t]) written at place slots[t], counted over blocks.

    latent: (tokens, latent). rotary: (tokens, rotary). cache: (blocks, block, latent + rotary). No slot is named twice.
    """

    def forward(self, latent, rotary, cache, slots):
        cache.flatten(0, 1).index_copy_(0, slots, torch.cat((latent, rotary), dim=-1))
        return cache


def get_inputs():
    slots = torch.randperm(BLOCKS * BLOCK)[:TOKENS].clone()
    cache = torch.randn(BLOCKS, BLOCK, LATENT + ROTARY)
    return [torch.randn(TOKENS, LATENT), torch.randn(TOKENS, ROTARY), cache, slots]


def get_init_inputs():
    return []
