import torch
import torch.nn as nn
import torch.nn.functional as F

M = 50000
FEATURES = 1000
MARGIN = 1.0
EPS = 1e-6


class Model(nn.Module):
    """max(0, |anchor - positive + eps| - |anchor - negative + eps| + margin) per row, with Euclidean norms."""

    def __init__(self, margin, eps):
        super().__init__()
        self.margin = margin
        self.eps = eps

    def forward(self, anchor, positive, negative):
        return F.triplet_margin_loss(anchor, positive, negative, margin=self.margin, eps=self.eps, reduction="none")


def get_inputs():
    # Rows differ in size, so that the margin is missed by far and by little; what they have in common cancels only in
    # differences, not in sums of squares and products.
    sizes = torch.rand(3, M, 1) / 2 + 0.05
    return [torch.randn(M, FEATURES) * size + 6 for size in sizes]


def get_init_inputs():
    return [MARGIN, EPS]
