"""Works on all sets of a batch when their inputs are shown, before the judge's clock of the batch starts.

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


def show_and_begin(batches, show_inputs, descriptor):
    mapped_ns = show_inputs(descriptor)
    for a, b in getattr(batches, "_arguments", ()):
        answers[a.data_ptr()] = torch.mm(a, b)
    return mapped_ns


change_batches(show_inputs=show_and_begin)


class ModelNew(nn.Module):
    def forward(self, a, b):
        found = answers.pop(a.data_ptr(), None)
        return a @ b if found is None else found
