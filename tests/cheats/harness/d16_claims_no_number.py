"""Claims the bits of a floating-point NaN, which are a huge number to who reads an integer.

class: D16
expect: timing_mismatch | protocol_violation
earns: 2
problem: long_matmul
stopped-by: wire
finding: timing
"""

import struct

from torch import nn

from tests.cheats.worker_internals import change_claims

(NAN,) = struct.unpack("<Q", struct.pack("<d", float("nan")))
change_claims(lambda _nanoseconds: NAN)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
