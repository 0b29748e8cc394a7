"""The CPU, as judge, workers and builders see it. The simplest inside half, and the example for others.

Calls are over when they return, and the host's clock times them. Memory is shared as sealed anonymous files.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable, Sequence, Tuple

from kernel_matrix.inside.known_answers import WORDS, right_answer, worked_out
from kernel_matrix.inside.platform import DeviceHealth
from kernel_matrix.inside.platform_defaults import *  # noqa: F403  # what it has not

if TYPE_CHECKING:
    from kernel_matrix.inside.memory import Arena

TORCH_DEVICE = "cpu"
IS_ACCELERATOR = False


def transport() -> str:
    """Name the shared file."""
    return "memfd"


def create_arena(nbytes: int) -> Arena:
    """Make an anonymous file that a worker cannot shrink while the judge uses it."""
    from kernel_matrix.inside.memory import create_shared_file, map_file  # noqa: PLC0415  # torch comes with it

    return map_file(create_shared_file(nbytes), nbytes)


def open_arena(descriptor: int, nbytes: int) -> Arena:
    """Map the file."""
    from kernel_matrix.inside.memory import map_file  # noqa: PLC0415  # torch comes with it

    return map_file(descriptor, nbytes)


def make_timer() -> Callable[[Callable[[], Any]], Tuple[Any, int]]:
    """Time calls by the host's clock."""

    def timed(function: Callable[[], Any]) -> Tuple[Any, int]:
        started = time.perf_counter_ns()
        returned = function()
        return returned, time.perf_counter_ns() - started

    return timed


def check_health(seconds: float) -> DeviceHealth:  # noqa: ARG001  # no clock is read
    """Work out a few known answers in this interpreter."""
    started = time.monotonic()
    wrong = [index for index in range(0, WORDS, WORDS // 64) if worked_out(index) != right_answer(index)]
    reason = f"known answers: {len(wrong)} are wrong, the first is number {wrong[0]}" if wrong else ""
    return DeviceHealth(not wrong, reason, None, time.monotonic() - started)


def product_sizes() -> Sequence[int]:
    """Return sizes that take milliseconds."""
    return (256, 512)


def buffer_bytes() -> int:
    """Return more than most caches hold."""
    return 64 << 20
