"""The inside half: memory in a file, and a clock that counts ticks of ten nanoseconds.

Judge and worker see this folder as ``kernel_matrix.platforms.abacus.inside``, and nothing else of the package.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernel_matrix.inside.platform import DeviceHealth
from kernel_matrix.inside.platform_defaults import *  # noqa: F403  # members for what the device lacks

if TYPE_CHECKING:
    from kernel_matrix.inside.memory import Arena

TORCH_DEVICE = "cpu"
IS_ACCELERATOR = True
TICK_NS = 10


def transport() -> str:
    """Return the name of how tensors cross."""
    return "abacus-file"


def create_arena(nbytes: int) -> Arena:
    """Make a file without a name; the worker gets its descriptor.

    A worker could shorten this file. A real platform seals it: see ``kernel_matrix.inside.memory.create_shared_file``.
    """
    from kernel_matrix.inside.memory import map_file  # noqa: PLC0415  # torch comes with it

    with tempfile.TemporaryFile() as file:
        file.truncate(nbytes)
        return map_file(os.dup(file.fileno()), nbytes)


def open_arena(descriptor: int, nbytes: int) -> Arena:
    """Map the judge's file."""
    from kernel_matrix.inside.memory import map_file  # noqa: PLC0415  # torch comes with it

    return map_file(descriptor, nbytes)


def ticks() -> int:
    """Return the device's clock."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) // TICK_NS


def make_timer() -> Callable[[Callable[[], Any]], tuple[Any, int]]:
    """Time calls by the device's clock."""

    def timed(function: Callable[[], Any]) -> tuple[Any, int]:
        started = ticks()
        returned = function()
        return returned, (ticks() - started) * TICK_NS

    return timed


def check_health(seconds: float, devices: int) -> DeviceHealth:  # noqa: ARG001  # no clock is read
    """Have it add, as every abacus can."""
    return DeviceHealth(passed=sum(range(101)) == 5050, reason="", sm_mhz=None, seconds=0.0)


def product_sizes() -> Sequence[int]:
    """Return sizes that take milliseconds."""
    return (256, 512)


def buffer_bytes() -> int:
    """Return more than most caches hold."""
    return 64 << 20
