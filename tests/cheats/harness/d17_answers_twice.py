"""Sends the claim of each call twice, so that every answer is taken for that of the call before.

class: D17
expect: protocol_violation
problem: long_matmul
stopped-by: wire
finding: timing
"""

from torch import nn

from kernel_matrix.inside.wire import Channel, FrameKind

send = Channel.send


def send_twice(self, kind, sequence=0, payload=b"", descriptors=()):
    send(self, kind, sequence, payload, descriptors)
    if kind is FrameKind.DONE:
        send(self, kind, sequence, payload, descriptors)


Channel.send = send_twice


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
