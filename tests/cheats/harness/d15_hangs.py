"""Never comes back from a call.

class: D15
expect: timeout
problem: relu
stopped-by: limits
"""

import time

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            time.sleep(1)
