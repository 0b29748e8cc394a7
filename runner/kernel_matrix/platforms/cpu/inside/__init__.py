"""Inside half of the CPU platform, for judge, workers and builders. It is the simplest one, and the example for others.

A call has ended when it returns, and the host's clock times it. Memory is shared as sealed anonymous files.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable, Sequence, Tuple

from kernel_matrix.inside.known_answers import WORDS, right_answer, worked_out
from kernel_matrix.inside.platform import DeviceHealth
from kernel_matrix.inside.platform_defaults import *  # noqa: F403  # members for what the device lacks

if TYPE_CHECKING:
    from kernel_matrix.inside.memory import Arena

TORCH_DEVICE = "cpu"
IS_ACCELERATOR = False


def transport() -> str:
    """Return the kind of shared memory."""
    return "memfd"


def create_arena(nbytes: int) -> Arena:
    """Make and map an anonymous file that a worker cannot shrink while the judge uses it."""
    from kernel_matrix.inside.memory import create_shared_file, map_file  # noqa: PLC0415  # torch comes with it

    return map_file(create_shared_file(nbytes), nbytes)


def open_arena(descriptor: int, nbytes: int) -> Arena:
    """Map the file that the judge shares."""
    from kernel_matrix.inside.memory import map_file  # noqa: PLC0415  # torch comes with it

    return map_file(descriptor, nbytes)


def make_timer() -> Callable[[Callable[[], Any]], Tuple[Any, int]]:
    """Return a function that times a call with the host's clock."""

    def timed(function: Callable[[], Any]) -> Tuple[Any, int]:
        started = time.perf_counter_ns()
        returned = function()
        return returned, time.perf_counter_ns() - started

    return timed


def check_health(seconds: float, devices: int) -> DeviceHealth:  # noqa: ARG001  # part of the protocol
    """Work out a few known answers in this interpreter."""
    started = time.monotonic()
    wrong = [index for index in range(0, WORDS, WORDS // 64) if worked_out(index) != right_answer(index)]
    reason = f"known answers: {len(wrong)} are wrong, the first is number {wrong[0]}" if wrong else ""
    return DeviceHealth(not wrong, reason, None, time.monotonic() - started)


def product_sizes() -> Sequence[int]:
    """Return sizes of matrix products that take milliseconds."""
    return (256, 512)


def buffer_bytes() -> int:
    """Return a size that exceeds most caches."""
    return 64 << 20
