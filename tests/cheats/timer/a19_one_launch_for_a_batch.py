"""Makes one launch for all calls of a batch.

class: A19
expect: timed | timing_mismatch
earns: 1.2
problem: long_matmul
device: cuda
stopped-by: nothing
"""

import torch
from torch import nn

from tests.cheats.worker_internals import change_batches


def call_at_once(batches, call, chunks):
    numbers = [number for chunk in chunks for number in range(chunk * batches._chunk, (chunk + 1) * batches._chunk)]
    sides = [torch.stack([batches._arguments[number][side] for number in numbers]) for side in (0, 1)]
    return list(zip(numbers, torch.bmm(*sides), strict=True))


change_batches(call=call_at_once)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
