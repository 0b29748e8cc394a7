"""All ranks return the sum of the call before, and start the next one meanwhile.

class: E2
problem: all_reduce
expect: incorrect_values
stopped-by: fresh inputs
"""

import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.before = None

    def forward(self, x):
        total = x.clone()
        dist.all_reduce(total)
        answer, self.before = (total if self.before is None else self.before), total
        return answer.clone()
