"""Whether a device does nothing but the judge's work, before it is another contestant's turn.

A candidate that is paused queues no more work, but what it has queued on a GPU goes on, and takes time from the others.
"""

from __future__ import annotations

import time
from typing import Optional

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
    """Watches one device by filling some memory of its own; on a platform without a device it is always quiet."""

    def __init__(self, platform: InsidePlatform) -> None:
        self._platform = platform
        self._memory: Optional[torch.Tensor] = None
        self._usual_ns = 0

    def learn(self) -> None:
        """Learn how long a fill takes; no contestant may have loaded its source yet.

        On a device that is not quiet now, a virtual one that others share for example, nothing is concluded later.
        """
        if not self._platform.IS_ACCELERATOR:
            return
        memory = torch.empty(FILLED_BYTES, dtype=torch.uint8, device=self._platform.TORCH_DEVICE)
        fills = sorted(self._fill_ns(memory) for _ in range(LEARNT_FILLS))
        self._usual_ns = fills[0]
        if fills[-1 - SLOW_AT_MOST] <= self._usual_ns + EXCESS_NS:
            self._memory = memory

    def wait(self) -> bool:
        """Wait until the device is quiet; return False if it stays busy."""
        deadline = time.monotonic() + WAIT_S
        quick = 0
        while self._memory is not None and quick < QUICK_IN_A_ROW:
            if self._fill_ns(self._memory) <= self._usual_ns + EXCESS_NS:
                quick += 1
            elif time.monotonic() > deadline:
                return False
            else:
                quick = 0
        return True

    def _fill_ns(self, memory: torch.Tensor) -> int:
        self._platform.synchronize()
        started = time.perf_counter_ns()
        memory.zero_()
        self._platform.synchronize()
        return time.perf_counter_ns() - started
