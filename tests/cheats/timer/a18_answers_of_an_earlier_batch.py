"""Returns what it found in an earlier batch for inputs at the same addresses.

class: A18
expect: incorrect_values | nonfinite
problem: long_matmul
device: cuda
stopped-by: fresh inputs
"""

from torch import nn

from tests.cheats.worker_internals import is_in_batch

kept = {}


class ModelNew(nn.Module):
    def forward(self, a, b):
        if not is_in_batch():
            return a @ b
        if a.data_ptr() not in kept:
            kept[a.data_ptr()] = a @ b
        return kept[a.data_ptr()]
