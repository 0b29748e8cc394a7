"""Returns zeros for one of seven calls in batches.

class: A18
expect: incorrect_values
problem: long_matmul
device: cuda
stopped-by: values
"""

import itertools

import torch
from torch import nn

from tests.cheats.worker_internals import is_in_batch

calls = itertools.count(1)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.zeros_like(a) if is_in_batch() and next(calls) % 7 == 0 else a @ b
