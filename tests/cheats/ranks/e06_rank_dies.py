"""The process of rank 1 dies while rank 0 waits for it.

class: E6
problem: all_reduce
expect: crashed | runtime_error
stopped-by: isolation
"""

import os
import signal

import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        total = x.clone()
        dist.all_reduce(total)
        return total
