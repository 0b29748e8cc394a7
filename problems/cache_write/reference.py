import torch
import torch.nn as nn

SLOTS = 20000
FEATURES = 1500
TOKENS = 5000


class Model(nn.Module):
    """A new cache: rows[i] at slots[i], the old row where no slot says otherwise. No slot is named twice."""

    def forward(self, cache, slots, rows):
        return cache.index_copy(0, slots, rows)


def get_inputs():
    slots = torch.randperm(SLOTS)[:TOKENS].clone()
    return [torch.randn(SLOTS, FEATURES), slots, torch.randn(TOKENS, FEATURES)]


def get_init_inputs():
    return []
