"""Health check of a GPU: arithmetic with known answers on every multiprocessor, patterns in its memory, and its clock.

It is fast and works without torch. It only decides whether the next cell may run on this GPU, and is no stress test.
The texts of the kernels are the platform's: ``known_answers(answers, rounds)``, ``write_pattern(memory, words, mask)``
and ``sum_pattern(memory, words, total)``.
"""

from __future__ import annotations

import ctypes
import statistics
import time
import zlib
from array import array
from dataclasses import replace
from functools import partial
from typing import Callable, Collection, ContextManager, Optional, Sequence

from kernel_matrix.inside.core_clock import CoreClocks
from kernel_matrix.inside.gpu_driver import DriverDevice, KernelModule
from kernel_matrix.inside.known_answers import ROUNDS, WORDS, right_answer
from kernel_matrix.inside.platform import DeviceError, DeviceHealth

ANSWERS_CRC32 = 0xC287B4B3
"""CRC-32 of all right answers as little-endian words, so that the host need not compute them."""
MASKS = (0x00000000, 0xFFFFFFFF, 0x55555555, 0xAAAAAAAA)
"""Masks of the patterns: each word is its own index xor the mask, so that each bit is tested as 0 and as 1."""
PATTERN_WORDS = 1 << 26
"""256 MiB, several times the size of a cache; :func:`right_sum` needs a power of two."""

_THREADS = 256
_BLOCKS_PER_MULTIPROCESSOR = 8
_WORST_FIRST = (False, None, True)  # results of a check


class WrongAnswerError(Exception):
    """The device computed or stored a wrong value."""


def check_devices(
    opened: Callable[[int], ContextManager[DriverDevice]],
    text: str,
    read_clocks: Callable[[DriverDevice], CoreClocks],
    cannot_ask: Collection[Optional[int]],
    devices: int,
) -> DeviceHealth:
    """Check the first ``devices`` visible GPUs; a broken one is a result, not an error.

    Args:
        opened: Opens the GPU with this ordinal.
        text: Text of the kernels.
        read_clocks: Reads the clocks of its multiprocessors.
        cannot_ask: Codes of errors that come from the container and not from the GPU.
        devices: Number of GPUs.

    Returns:
        Health of the first one that is broken, else of the first that could not be checked, else of the first.
    """
    started = time.monotonic()
    # In reverse, because some drivers keep the GPU that was opened last as the thread's own.
    ordinals = reversed(range(devices))
    checked = {n: _check_device(partial(opened, n), text, read_clocks, cannot_ask) for n in ordinals}
    ordinal, found = min(sorted(checked.items()), key=lambda one: _WORST_FIRST.index(one[1].passed))
    reason = f"device {ordinal}: {found.reason}" if found.reason and devices > 1 else found.reason
    return replace(found, reason=reason, seconds=time.monotonic() - started)


def _check_device(
    opened: Callable[[], ContextManager[DriverDevice]],
    text: str,
    read_clocks: Callable[[DriverDevice], CoreClocks],
    cannot_ask: Collection[Optional[int]],
) -> DeviceHealth:
    started = time.monotonic()
    passed: Optional[bool] = True
    sm_mhz, reason = None, ""
    try:
        with opened() as device:
            with device.module(text) as module:
                _check_answers(device, module)
                _check_memory(device, module)
            clocks = read_clocks(device).mhz
            sm_mhz = statistics.median(clocks) if clocks else None
    except WrongAnswerError as error:
        passed, reason = False, str(error)
    except DeviceError as error:
        passed, reason = None if error.code in cannot_ask else False, str(error)
    return DeviceHealth(passed, reason, sm_mhz, time.monotonic() - started)


def _check_answers(device: DriverDevice, module: KernelModule) -> None:
    """Compute all known answers on the device.

    Raises:
        WrongAnswerError: One is wrong; the message names the first one.
    """
    with device.memory(WORDS * 4) as memory:
        module.launch("known_answers", WORDS // _THREADS, _THREADS, memory, ctypes.c_uint32(ROUNDS))
        answers = device.read(memory, WORDS * 4)
    if zlib.crc32(answers) != ANSWERS_CRC32:
        raise WrongAnswerError(_first_wrong(array("I", answers)))


def _first_wrong(answers: Sequence[int]) -> str:
    wrong = [index for index, answer in enumerate(answers) if answer != right_answer(index)]
    first = wrong[0]
    return (
        f"known answers: {len(wrong)} of {len(answers)} are wrong; number {first} is {answers[first]:#010x}, "
        f"not {right_answer(first):#010x}"
    )


def _check_memory(device: DriverDevice, module: KernelModule) -> None:
    """Write patterns to device memory and read them back.

    Raises:
        WrongAnswerError: A pattern has changed; the message names it.
    """
    words = pattern_words(device.free_bytes())
    blocks = device.multiprocessors() * _BLOCKS_PER_MULTIPROCESSOR
    count = ctypes.c_uint32(words)
    with device.memory(words * 4) as memory, device.memory(8) as total:
        for mask in MASKS:
            device.clear(total, 8)
            module.launch("write_pattern", blocks, _THREADS, memory, count, ctypes.c_uint32(mask))
            module.launch("sum_pattern", blocks, _THREADS, memory, count, total)
            found = int.from_bytes(device.read(total, 8), "little")
            if found != right_sum(words, mask):
                raise WrongAnswerError(
                    f"device memory: pattern {mask:#010x} over {words} words sums to {found}, "
                    f"not {right_sum(words, mask)}"
                )


def pattern_words(free_bytes: int) -> int:
    """Return the number of words to test: :data:`PATTERN_WORDS`, or a power of two within half the free memory."""
    return min(PATTERN_WORDS, 1 << max(10, (free_bytes // 8).bit_length() - 1))


def right_sum(words: int, mask: int) -> int:
    """Return the sum of ``index ^ mask`` over ``words`` indices, a power of two.

    The mask's low bits only permute the indices, so that they do not change the sum.
    """
    return words * (words - 1) // 2 + words * (mask & ~(words - 1))
