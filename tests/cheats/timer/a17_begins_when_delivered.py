"""Works on all sets of a batch when their inputs are there, before the judge's clock of the batch starts.

class: A17
expect: timed | timing_mismatch
earns: 1.2
problem: long_matmul
device: cuda
stopped-by: batches
"""

import torch
from torch import nn

from tests.cheats.worker_internals import change_batches

answers = {}


def begin_to_work(batches, begin):
    switched_ns = begin()
    for a, b in batches._arguments:
        answers[a.data_ptr()] = torch.mm(a, b)
    return switched_ns


change_batches(begin=begin_to_work)


class ModelNew(nn.Module):
    def forward(self, a, b):
        found = answers.pop(a.data_ptr(), None)
        return a @ b if found is None else found
