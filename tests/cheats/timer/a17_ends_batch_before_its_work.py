"""Says that a batch has ended when its work is queued, so that it runs while the outputs are handed over.

class: A17
expect: timed | timing_mismatch | incorrect_values | nonfinite
earns: 1.2
problem: long_matmul
device: cuda
stopped-by: batches
"""

from torch import nn

from tests.cheats.worker_internals import change_batches


def call_without_waiting(batches, call, chunks):
    platform = batches._platform
    batches._platform = Hasty(platform)
    try:
        return call(chunks)
    finally:
        batches._platform = platform


class Hasty:
    def __init__(self, platform):
        self._platform = platform

    def __getattr__(self, name):
        return getattr(self._platform, name)

    def synchronize(self):
        pass


change_batches(call=call_without_waiting)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
