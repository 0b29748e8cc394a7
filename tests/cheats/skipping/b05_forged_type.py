"""The same, with the idea of a type replaced in all that runs beside it: the work is done while it is copied out.

class: B5
expect: timing_mismatch | incorrect_structure | incorrect_values
problem: relu
stopped-by: two clocks
finding: lazy
"""

import sys
import time

import torch
from torch import nn


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.copy_:
            time.sleep(0.05)
            args = [a.as_subclass(torch.Tensor).relu() if isinstance(a, Lazy) else a for a in args]
            return func(*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs or {})


def pretended_type(thing):
    return torch.Tensor if type(thing) is Lazy else type(thing)


for name in list(sys.modules):
    if name == "__main__" or name.startswith("kernel_matrix.inside."):
        sys.modules[name].type = pretended_type


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone().as_subclass(Lazy)
