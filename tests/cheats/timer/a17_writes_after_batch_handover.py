"""Returns zeros in batches, and writes the answers into the lent memory when the outputs have been handed over.

class: A17
expect: incorrect_values | nonfinite
problem: long_matmul
device: cuda
stopped-by: hand-over
finding: streams
"""

import torch
from torch import nn

from tests.cheats.worker_internals import after_answer, change_batches, is_in_batch

owed = []
late = torch.cuda.Stream()


def remember_and_hand_over(batches, hand_over, returned):
    owed.extend((batches._places[number][0], *batches._arguments[number]) for number, _ in returned)
    return hand_over(returned)


def write(kind):
    while kind == "OUTPUTS" and owed:
        place, a, b = owed.pop()
        with torch.cuda.stream(late):
            torch.mm(a, b, out=place)


change_batches(hand_over=remember_and_hand_over)
after_answer(write)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.zeros_like(a) if is_in_batch() else a @ b
