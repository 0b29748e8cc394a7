"""Sends a claim of four bytes where eight are due.

class: D16
expect: protocol_violation
problem: long_matmul
stopped-by: wire
finding: timing
"""

from torch import nn

from tests.cheats.worker_internals import on_answer


def cut(kind, sequence, payload):
    return sequence, (payload[:4] if kind == "DONE" else payload)


on_answer(cut)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
