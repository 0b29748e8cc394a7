"""Honest: does not divide by sums that are one in every draw of the problem.

class: control
problem: attention_weights
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, weights, values):
        return weights @ values
