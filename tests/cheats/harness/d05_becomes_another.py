"""Starts itself anew with libraries of its own in front of everybody else's.

class: D5
expect: crashed
problem: relu
stopped-by: wire
"""

import os
import sys

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        os.environ["LD_PRELOAD"] = os.environ["CUDA_INJECTION64_PATH"] = "/tmp/own.so"
        os.execv(sys.executable, (sys.executable, "-c", "import time; time.sleep(30)"))
