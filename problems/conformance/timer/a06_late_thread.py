"""Returns at once; a thread fills the output in later, when the clock has been read.

class: A6
expect: incorrect_values | nonfinite
problem: relu
stopped-by: values
finding: threads
"""

import threading
import time

import torch
from torch import nn


def fill(out, x):
    time.sleep(0.05)
    out.copy_(torch.relu(x))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        threading.Thread(target=fill, args=(out, x.clone()), daemon=True).start()
        return out
