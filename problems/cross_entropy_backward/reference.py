import torch
import torch.nn as nn

BATCH = 8192
CLASSES = 8000


class Model(nn.Module):
    """(softmax(logits) - one at the target) * gradient of the row's loss."""

    def forward(self, logits, targets, gradients):
        change = torch.softmax(logits, dim=-1)
        rows = torch.arange(len(targets), device=targets.device)
        change[rows, targets] -= 1
        return change * gradients[:, None]


def get_inputs():
    # So wide that a few classes take most of each row: else all but the target's number would be next to nothing.
    return [torch.randn(BATCH, CLASSES) * 4, torch.randint(0, CLASSES, (BATCH,)), torch.randn(BATCH)]


def get_init_inputs():
    return []
