"""Sleeps in short batches, so that the difference between short and long ones looks small; claims 0.8 of its time.

class: A19
expect: timed | timing_mismatch
earns: 1.2
problem: long_matmul
device: cuda
stopped-by: batches
"""

import time

from torch import nn

from tests.cheats.worker_internals import change_batches, change_claims


def sleep_and_call(_batches, call, chunks):
    if len(chunks) == 1:
        time.sleep(0.003)
    return call(chunks)


change_batches(call=sleep_and_call)
change_claims(lambda nanoseconds: nanoseconds * 8 // 10)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
