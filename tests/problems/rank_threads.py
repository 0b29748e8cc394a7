"""Candidates of several ranks in threads of this process, also those that read the memory of peers.

One thread runs at a time, and hands over where it waits for others: Triton's interpreter can do one thing at a time.
All memory is the process's own, so the addresses of peers are as good as on GPUs that reach each other.
"""

import threading
from unittest import mock

import torch
import torch.distributed._symmetric_memory as symm_mem

from kernel_matrix.inside.judge import emulated_ranks

EXCHANGE = emulated_ranks._Meeting.exchange
TURN = threading.Lock()
"""Held by the rank that runs."""


class AllRanks:
    """The models of all ranks as one, which takes the arguments of all and returns the outputs of all."""

    def __init__(self, models):
        self.models = models

    def __call__(self, *arguments):
        ranks = len(self.models)
        each = len(arguments) // ranks

        def call(rank):
            with TURN:
                return self.models[rank](*arguments[rank * each : (rank + 1) * each])

        in_turn = mock.patch.object(emulated_ranks._Meeting, "exchange", exchange_in_turn)
        with in_turn, mock.patch.multiple(symm_mem, empty=torch.empty, rendezvous=Handle):
            return emulated_ranks._join(emulated_ranks.run_ranks(call, ranks, arguments))


class Handle:
    """What a rendezvous returns: the addresses of a buffer on all ranks, and a barrier."""

    def __init__(self, buffer, _group):
        self.rank, self.world_size = emulated_ranks._get_rank(), emulated_ranks._get_world_size()
        self.buffer_ptrs = emulated_ranks._exchange(buffer.data_ptr(), "rendezvous")

    def barrier(self, channel=0):
        emulated_ranks._exchange(None, f"barrier on channel {channel}")


def exchange_in_turn(meeting, *arguments):
    """Wait for the other ranks, and let them run meanwhile."""
    TURN.release()
    try:
        return EXCHANGE(meeting, *arguments)
    finally:
        TURN.acquire()
