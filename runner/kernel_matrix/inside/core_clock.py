"""The core clock measured in a kernel, on every multiprocessor under load: cycles per tick of a timer of known rate.

The driver reports the clock that was requested of the hardware; the kernel counts the cycles that really passed. It
needs no permission except to run a kernel. The text of the kernel ``read_clocks`` is the platform's. Its parameters are
the address of its readings, the ticks of the work before the window, those of the window, and the most cycles of
either.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from array import array
from dataclasses import dataclass
from typing import Dict, Optional, Sequence

from kernel_matrix.inside.gpu_driver import DriverDevice
from kernel_matrix.inside.platform import DeviceError
from kernel_matrix.model.messages import ClockProbeReading

SHORTEST_S = 0.025
"""Shortest window; a shorter one has a larger error than the platforms state."""
WORDS_PER_BLOCK = 7
"""64-bit words that a block writes: t0, c0, t1, c1, multiprocessor before, and after, computed value."""

_LEAD_NS = 5_000_000
"""Duration of the work before the window, in which the clock of an idle GPU rises."""
_THREADS = 256
"""Of a block: two warps of 32, or one wavefront of 64, for each of a multiprocessor's four schedulers."""
_CYCLES_PER_NS = 10
"""More cycles than any GPU has: the kernel ends after so many if the timer does not move."""


@dataclass(frozen=True)
class CoreClocks:
    """Clocks of multiprocessors, and start and end of the measurement by the monotonic clock."""

    started_ns: int
    ended_ns: int
    mhz: Sequence[float]
    """Clock of each multiprocessor that could be measured, MHz."""


def read_clocks(device: DriverDevice, text: str, seconds: float, ticks_per_us: float = 1000.0) -> CoreClocks:
    """Measure the clock of every multiprocessor of ``device`` under load.

    Args:
        device: The device.
        text: Text of the kernel.
        seconds: Length of the window.
        ticks_per_us: Ticks of the timer per microsecond.

    Raises:
        DeviceError: The kernel cannot run.
        ValueError: The window is shorter than :data:`SHORTEST_S`.
    """
    if seconds < SHORTEST_S:
        raise ValueError(f"a window of {seconds:g} s is too short for the timer, take at least {SHORTEST_S:g} s")
    lead, window = (round(ns * ticks_per_us / 1000) for ns in (_LEAD_NS, seconds * 1e9))
    most_cycles = round(seconds * 1e9) * _CYCLES_PER_NS
    blocks = device.multiprocessors()
    nbytes = blocks * WORDS_PER_BLOCK * 8
    with device.module(text) as module, device.memory(nbytes) as readings:
        device.wait()
        started_ns = time.monotonic_ns()
        module.launch("read_clocks", blocks, _THREADS, readings, *map(ctypes.c_uint64, (lead, window, most_cycles)))
        device.wait()
        ended_ns = time.monotonic_ns()
        words = array("Q", device.read(readings, nbytes))
    return CoreClocks(started_ns, ended_ns, clocks_of(words, window, ticks_per_us))


def reading_of(phase: str, clocks: CoreClocks, timers: str) -> ClockProbeReading:
    """Return the median and the extremes over all multiprocessors.

    Args:
        phase: Name of the phase.
        clocks: What was read.
        timers: Names of the timers, for the message of an error.

    Raises:
        DeviceError: No multiprocessor has usable timers.
    """
    if not clocks.mhz:
        raise DeviceError(f"no multiprocessor gave a usable reading of {timers}")
    return ClockProbeReading(
        phase=phase,
        started_ns=clocks.started_ns,
        ended_ns=clocks.ended_ns,
        sm_mhz=statistics.median(clocks.mhz),
        low_mhz=min(clocks.mhz),
        high_mhz=max(clocks.mhz),
        sms=len(clocks.mhz),
    )


def clocks_of(words: Sequence[int], window: int, ticks_per_us: float = 1000.0) -> Sequence[float]:
    """Return the clock of each multiprocessor in MHz from the words that the blocks wrote."""
    found: Dict[int, float] = {}
    for start in range(0, len(words), WORDS_PER_BLOCK):
        block = words[start : start + WORDS_PER_BLOCK]
        cycles_per_tick = _cycles_per_tick(block, window)
        if cycles_per_tick is not None:
            found[block[4]] = cycles_per_tick * ticks_per_us
    return tuple(found.values())


def _cycles_per_tick(block: Sequence[int], window: int) -> Optional[float]:
    """Return one block's clock; None if the block moved to another multiprocessor, or a timer did not move."""
    t0, c0, t1, c1, before, after, _computed = block
    if before != after or t1 - t0 < window or c1 <= c0:
        return None
    return (c1 - c0) / (t1 - t0)
