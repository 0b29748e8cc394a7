"""Sends the answer to the next call behind that to the present one, under the number that would come next.

class: D17
expect: protocol_violation
problem: long_matmul
stopped-by: wire
finding: timing
"""

from torch import nn

from kernel_matrix.inside.wire import Channel, FrameKind

send = Channel.send
sent = {}


def send_twice(self, kind, sequence=0, payload=b"", descriptors=()):
    send(self, kind, sequence, payload, descriptors)
    sent[kind] = payload
    if kind is FrameKind.OUTPUTS:
        send(self, FrameKind.DONE, sequence + 1, sent[FrameKind.DONE])
        send(self, FrameKind.OUTPUTS, sequence + 1, payload)


Channel.send = send_twice


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
