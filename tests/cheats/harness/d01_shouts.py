"""A thread writes answers to calls that nobody asked for into the worker's connection.

class: D1
expect: protocol_violation
problem: relu
stopped-by: wire
finding: frames
"""

import gc
import struct
import threading
import time
from contextlib import suppress

import torch
from torch import nn

DONE, OUTPUTS = 17, 18


def frame(kind, payload):
    return struct.pack("<4sBxHIQ", b"KMX1", kind, 0, len(payload), 1) + payload


def shout():
    channel = next(thing for thing in gc.get_objects() if type(thing).__name__ == "Channel")
    connection = next(value for value in vars(channel).values() if hasattr(value, "sendall"))
    with suppress(OSError):
        while True:
            connection.sendall(frame(DONE, struct.pack("<Q", 1)) + frame(OUTPUTS, struct.pack("<BH", 0, 0)))
            time.sleep(0.01)


class ModelNew(nn.Module):
    shouting = False

    def forward(self, x):
        if not self.shouting:
            self.shouting = True
            threading.Thread(target=shout, daemon=True).start()
            time.sleep(0.05)
        return torch.relu(x)
