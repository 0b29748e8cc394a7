"""Describes its outputs before it has said that the call has ended.

class: D17
expect: protocol_violation
problem: long_matmul
stopped-by: wire
finding: timing
"""

from torch import nn

from kernel_matrix.inside.wire import Channel, FrameKind

send = Channel.send
held = []


def send_swapped(self, kind, sequence=0, payload=b"", descriptors=()):
    if kind is FrameKind.DONE:
        held.append((sequence, payload))
        return
    send(self, kind, sequence, payload, descriptors)
    if held:
        send(self, FrameKind.DONE, *held.pop())


Channel.send = send_swapped


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
