import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16384
CLASSES = 8192


class Model(nn.Module):
    """One loss per row: a mean over the batch would hardly change if most rows were left out."""

    def forward(self, logits, targets):
        return F.cross_entropy(logits, targets, reduction="none")


def get_inputs():
    return [torch.randn(BATCH, CLASSES) * 2, torch.randint(0, CLASSES, (BATCH,))]


def get_init_inputs():
    return []
