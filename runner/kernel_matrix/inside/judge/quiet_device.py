"""Whether devices do nothing but the judge's work, before it is another contestant's turn.

A candidate that is paused queues no more work, but what it has queued on a GPU goes on, and takes time from the others.
"""

from __future__ import annotations

import time
from typing import List, Sequence

import torch

from kernel_matrix.inside.platform import InsidePlatform

FILLED_BYTES = 32 << 20
"""Memory that is filled to see how long that takes: tens of microseconds on a GPU."""
EXCESS_NS = 300_000
"""On a busy device a fill waits for the other process's share of time, which is milliseconds, or shares it."""
QUICK_IN_A_ROW = 5
"""So many quick fills mean that the device is quiet; a single slow one may be the host's."""
LEARNT_FILLS = 20
SLOW_AT_MOST = 3
"""Slow ones among the fills from which the usual time is learnt; the first of them loads code."""
WAIT_S = 0.5
"""An honest contestant has no work left when it answers."""


class QuietDevice:
    """Watches the device of each rank by filling some memory of its own; without a device it is always quiet."""

    def __init__(self, platform: InsidePlatform, ranks: int = 1) -> None:
        self._platform = platform
        self._ranks = ranks
        self._memory: List[torch.Tensor] = []
        self._usual_ns = 0

    def learn(self) -> None:
        """Learn how long a fill takes; no contestant may have loaded its source yet.

        On a device that is not quiet now, a virtual one that others share for example, nothing is concluded later.
        """
        if not self._platform.IS_ACCELERATOR:
            return
        memory = [self._new_memory(rank) for rank in range(self._ranks)]
        fills = sorted(self._fill_ns(memory) for _ in range(LEARNT_FILLS))
        self._usual_ns = fills[0]
        if fills[-1 - SLOW_AT_MOST] <= self._usual_ns + EXCESS_NS:
            self._memory = memory

    def wait(self) -> bool:
        """Wait until the device is quiet; return False if it stays busy."""
        deadline = time.monotonic() + WAIT_S
        quick = 0
        while self._memory and quick < QUICK_IN_A_ROW:
            if self._fill_ns(self._memory) <= self._usual_ns + EXCESS_NS:
                quick += 1
            elif time.monotonic() > deadline:
                return False
            else:
                quick = 0
        return True

    def _new_memory(self, rank: int) -> torch.Tensor:
        with self._platform.on_device(rank):
            return torch.empty(FILLED_BYTES, dtype=torch.uint8, device=self._platform.TORCH_DEVICE)

    def _fill_ns(self, memory: Sequence[torch.Tensor]) -> int:
        """Return how long a fill of all devices takes, which is that of the busiest."""
        self._platform.synchronize()
        started = time.perf_counter_ns()
        for one in memory:
            one.zero_()
        self._platform.synchronize()
        return time.perf_counter_ns() - started
