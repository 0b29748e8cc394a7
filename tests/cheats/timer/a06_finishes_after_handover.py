"""Does three quarters of its work in the call, and the rest in the lent memory once its outputs are handed over.

class: A6
expect: incorrect_values | nonfinite | timing_mismatch
problem: matmul
device: cuda
stopped-by: two clocks
finding: timing
"""

import gc

import torch
from torch import nn

from kernel_matrix.inside.wire import Channel, FrameKind

owed = []
lent = []
send = Channel.send


def send_and_finish(self, kind, *arguments, **options):
    send(self, kind, *arguments, **options)
    while kind is FrameKind.OUTPUTS and owed:
        done, a, b = owed.pop()
        if lent and lent[0].outputs:
            torch.mm(a[done:], b, out=lent[0].outputs[0][done:])


Channel.send = send_and_finish


class ModelNew(nn.Module):
    def forward(self, a, b):
        done = a.shape[0] * 3 // 4
        out = torch.zeros(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
        torch.mm(a[:done], b, out=out[:done])
        if not lent or not lent[0].outputs:
            lent[:] = [thing for thing in gc.get_objects() if type(thing).__name__ == "CallBuffers" and thing.outputs]
        owed.append((done, a, b))
        return out
