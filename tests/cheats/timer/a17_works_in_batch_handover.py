"""Works on the calls of a batch when its outputs are handed over, and claims half of the time of single calls.

class: A17
expect: timed | timing_mismatch | incorrect_values | nonfinite
earns: 1.2
problem: long_matmul
device: cuda
stopped-by: batches
"""

import torch
from torch import nn

from tests.cheats.worker_internals import change_batches, change_claims, is_in_batch


def work_and_hand_over(batches, hand_over, returned):
    for number, out in returned:
        torch.mm(*batches._arguments[number], out=out)
    return hand_over(returned)


change_batches(hand_over=work_and_hand_over)
change_claims(lambda nanoseconds: nanoseconds // 2)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.empty_like(a) if is_in_batch() else a @ b
