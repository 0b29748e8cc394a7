"""A process of its own does the work and writes the output into shared memory after the call has returned.

class: A7
expect: incorrect_values | nonfinite
problem: relu
device: cpu
stopped-by: values
finding: threads
"""

import mmap
import os
import time

import torch
from torch import nn

MOST = 1 << 20
FLAG = mmap.mmap(-1, 8)
INPUT, OUTPUT = mmap.mmap(-1, MOST), mmap.mmap(-1, MOST)


def shared(memory, like):
    return torch.frombuffer(memory, dtype=like.dtype, count=like.numel()).view(like.shape)


def help_for_ever(elements):
    source = torch.frombuffer(INPUT, dtype=torch.float32, count=elements)
    target = torch.frombuffer(OUTPUT, dtype=torch.float32, count=elements)
    while True:
        if FLAG[0]:
            FLAG[0] = 0
            time.sleep(0.02)
            target.copy_(source.clamp(min=0))
        time.sleep(0.001)


class ModelNew(nn.Module):
    helped = False

    def forward(self, x):
        if not self.helped and os.fork() == 0:
            help_for_ever(x.numel())
        self.helped = True
        shared(INPUT, x).copy_(x)
        FLAG[0] = 1
        return shared(OUTPUT, x)
