"""Wrong: keeps its answers by the address of the input, where other numbers may lie at the next call."""

import torch.nn as nn
import torch.nn.functional as F

answers = {}


class ModelNew(nn.Module):
    def forward(self, x):
        key = (x.data_ptr(), x.shape)
        if key not in answers:
            gate, value = x.chunk(2, dim=-1)
            answers[key] = F.silu(gate) * value
        return answers[key]
