"""Honest: a thread wakes every few milliseconds to count, between calls too.

class: control
problem: long_matmul
"""

import threading
import time

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.ticks = 0
        threading.Thread(target=self.tick, daemon=True).start()

    def tick(self):
        while True:
            time.sleep(0.005)
            self.ticks += 1

    def forward(self, a, b):
        return a @ b
