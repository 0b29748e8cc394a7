"""Takes all weights for equal, which sum to one too.

class: B10
expect: incorrect_values
problem: attention_weights
stopped-by: values
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, weights, values):
        return values.mean(dim=0).expand_as(values).contiguous()
