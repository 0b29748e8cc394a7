"""Honest: a child process does the work in memory that both have, and is waited for.

class: control
problem: relu
device: cpu
"""

import mmap
import os

import torch
from torch import nn

MOST = 1 << 20
INPUT, OUTPUT = mmap.mmap(-1, MOST), mmap.mmap(-1, MOST)


def work(told, telling, elements):
    source = torch.frombuffer(INPUT, dtype=torch.float32, count=elements)
    target = torch.frombuffer(OUTPUT, dtype=torch.float32, count=elements)
    while os.read(told, 1):
        target.copy_(source.clamp(min=0))
        os.write(telling, b"!")
    os._exit(0)


class ModelNew(nn.Module):
    child = None

    def forward(self, x):
        if self.child is None:
            (asked, asking), (told, telling) = os.pipe(), os.pipe()
            if os.fork() == 0:
                os.close(asking)
                work(asked, telling, x.numel())
            self.child = (asking, told)
        asking, told = self.child
        torch.frombuffer(INPUT, dtype=x.dtype, count=x.numel()).view(x.shape).copy_(x)
        os.write(asking, b"!")
        os.read(told, 1)
        return torch.frombuffer(OUTPUT, dtype=x.dtype, count=x.numel()).view(x.shape).clone()
