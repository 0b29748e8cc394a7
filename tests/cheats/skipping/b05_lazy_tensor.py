"""Returns a tensor that computes when somebody looks at it.

class: B5
expect: incorrect_structure
problem: relu
stopped-by: structure
finding: lazy
"""

import torch
from torch import nn


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        plain = [a.as_subclass(torch.Tensor).relu() if isinstance(a, Lazy) else a for a in args]
        return func(*plain, **(kwargs or {}))


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone().as_subclass(Lazy)
