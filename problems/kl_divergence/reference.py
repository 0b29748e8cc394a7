import torch
import torch.nn as nn
import torch.nn.functional as F

M = 8192
N = 8000
SHARPNESS = 4.0


class Model(nn.Module):
    """sum(p * (log(p) - log(q))) of each row; p and q are the softmaxes of targets and logits times the sharpness."""

    def __init__(self, sharpness):
        super().__init__()
        self.sharpness = sharpness

    def forward(self, logits, targets):
        log_q = F.log_softmax(logits * self.sharpness, dim=-1)
        log_p = F.log_softmax(targets * self.sharpness, dim=-1)
        return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


def get_inputs():
    # Times the sharpness so wide that a few elements of a row make up its sums: part of a row does not tell them.
    return [torch.randn(M, N), torch.randn(M, N) * 1.5]


def get_init_inputs():
    return [SHARPNESS]
