import torch
import torch.nn as nn

BATCH = 4096
CLASSES = 32000
PENALTY = 0.01
VOID = -100


class Model(nn.Module):
    """(z - x[target] + penalty * z**2, z) per row, where z = log(sum(exp(x))); a void target's loss is zero."""

    def __init__(self, penalty):
        super().__init__()
        self.penalty = penalty

    def forward(self, logits, targets):
        z = torch.logsumexp(logits, dim=-1)
        chosen = logits.gather(1, targets.clamp_min(0)[:, None])[:, 0]
        return torch.where(targets < 0, 0, z - chosen + self.penalty * z * z), z


def get_inputs():
    targets = torch.randint(0, CLASSES, (BATCH,))
    targets[torch.rand(BATCH) < 0.1] = VOID
    # So wide that a few logits of a row make up its sum: part of a row does not tell it.
    return [torch.randn(BATCH, CLASSES) * 4, targets]


def get_init_inputs():
    return [PENALTY]
