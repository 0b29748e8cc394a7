"""A thread watches the inputs and begins when they change, before the call; what it gains is what lies between.

class: A6
expect: timed
costs-ms: 10
problem: relu
device: cpu
stopped-by: nothing
finding: threads
"""

import threading
import time

import torch
from torch import nn

WORK_S = 0.02


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = None
        self.out = None
        self.ready = threading.Event()

    def watch(self, x):
        last = None
        while True:
            now = x.flatten()[-1].item()
            if now != last:
                last = now
                self.ready.clear()
                time.sleep(WORK_S)
                self.seen, self.out = x.clone(), torch.relu(x)
                self.ready.set()
            time.sleep(0.0002)

    def forward(self, x):
        if self.seen is None and not self.ready.is_set():
            self.seen = x.clone()
            threading.Thread(target=self.watch, args=(x,), daemon=True).start()
        if self.ready.is_set() and torch.equal(self.seen, x):
            return self.out.clone()
        time.sleep(WORK_S)  # too early for the thread: the work is done here
        return torch.relu(x)
