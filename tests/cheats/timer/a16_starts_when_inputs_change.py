"""A thread watches the last element of the inputs and begins when it changes; the call waits for the thread alone.

class: A16
expect: timed | timing_mismatch | incorrect_values | nonfinite
earns: 2
problem: long_matmul
device: cpu
stopped-by: nothing
finding: threads
"""

import threading
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()
        self.answered = None  # the inputs that the thread has worked on, and its answer

    def watch(self, a, b):
        last = None
        while True:
            now = b[-1, -1].item()
            if now == last:
                time.sleep(0.0001)
                continue
            last = now
            inputs = (a.clone(), b.clone())
            with self.lock:
                self.answered = (*inputs, torch.mm(*inputs))

    def forward(self, a, b):
        if self.answered is None:
            self.answered = ()
            threading.Thread(target=self.watch, args=(a, b), daemon=True).start()
        with self.lock:
            found, self.answered = self.answered, ()
        if found and torch.equal(found[0], a) and torch.equal(found[1], b):
            return found[2]
        return a @ b  # too early for the thread: the work is done here
