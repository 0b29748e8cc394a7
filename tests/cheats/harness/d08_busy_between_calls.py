"""Keeps the device busy while it is the baseline's turn: its own time is what it is, and that is what ranks.

class: D8
expect: timed | timing_mismatch
problem: relu
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
        self.idle = threading.Event()

    def disturb(self, device):
        a = torch.ones(256, 256, device=device)
        until = time.monotonic() + 20
        while self.idle.wait(20) and time.monotonic() < until:
            a = (a @ a).clamp(0, 1)
            time.sleep(0.0005)

    def forward(self, x):
        if not self.idle.is_set():
            threading.Thread(target=self.disturb, args=(x.device,), daemon=True).start()
        self.idle.clear()
        out = torch.relu(x)
        self.idle.set()
        return out
