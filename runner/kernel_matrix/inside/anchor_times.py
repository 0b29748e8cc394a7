"""Two fixed kernels of the judge, timed at the beginning and at the end of a session.

They are the same in every session on every machine, so their times show how fast the machine was. A change of a
candidate's time can then be distinguished from a change of the machine. One kernel does arithmetic in registers and
depends on the core clock; the other copies more than any cache holds and depends on the memory. Their texts are the
platform's: ``anchor_compute(results, rounds)`` and ``anchor_copy(source, target, words)``.
"""

from __future__ import annotations

import ctypes
import statistics
import time

from kernel_matrix.inside.gpu_driver import DriverDevice
from kernel_matrix.model.messages import AnchorTimes

REPEATS = 9
"""How often each kernel is timed. The median counts; an odd number, so that it is one of the times."""
ROUNDS = 4096
"""Passes through the arithmetic, which take a quarter of a millisecond at 2 GHz."""
COPIES = 32
"""Copies that are timed together: medians of single ones, 40 us each on an H200, differ by 4 % within a session."""

_THREADS = 256
_BLOCKS_PER_MULTIPROCESSOR = 8
_WORD = 8


def time_anchors(phase: str, device: DriverDevice, text: str, copied_bytes: int) -> AnchorTimes:
    """Time the two kernels, which takes about twenty milliseconds.

    Args:
        phase: Name of the phase.
        device: The device.
        text: Text of the kernels.
        copied_bytes: Bytes that are read, and written; with source and target together more than the caches hold.

    Raises:
        DeviceError: They cannot run.
    """
    started_ns = time.monotonic_ns()
    with device.module(text) as module, device.stopwatch() as stopwatch:
        blocks = device.multiprocessors()
        with device.memory(copied_bytes) as source, device.memory(copied_bytes) as target:
            words, rounds = ctypes.c_uint32(copied_bytes // _WORD), ctypes.c_uint32(ROUNDS)

            def compute() -> None:
                module.launch("anchor_compute", blocks, _THREADS, target, rounds)

            def copy() -> None:
                for _ in range(COPIES):
                    module.launch("anchor_copy", blocks * _BLOCKS_PER_MULTIPROCESSOR, _THREADS, source, target, words)

            computing, copying = [], []
            for _ in range(REPEATS):
                compute()  # untimed: it keeps the device busy, and its clock high, while the host queues the timed one
                computing.append(stopwatch.time_ns(compute))
                compute()
                copying.append(stopwatch.time_ns(copy) / COPIES)
    return AnchorTimes(
        phase=phase,
        started_ns=started_ns,
        compute_ns=round(statistics.median(computing)),
        memory_ns=round(statistics.median(copying)),
    )
