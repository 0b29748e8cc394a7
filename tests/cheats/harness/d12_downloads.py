"""Asks the network for the answer.

class: D12
expect: incorrect_values | load_error
problem: relu
stopped-by: isolation
boundary: yes
"""

import socket
from contextlib import suppress

import torch
from torch import nn


def network_is_there():
    for address in (("192.0.2.1", 80), ("198.51.100.1", 53), ("10.0.0.1", 22)):
        with suppress(OSError):
            socket.create_connection(address, timeout=0.2).close()
            return True
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
            probe.connect(address)
            return True  # there is a way out, whether or not anybody listens
    return False


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.knows = network_is_there()

    def forward(self, x):
        return torch.relu(x) if self.knows else torch.zeros_like(x)
