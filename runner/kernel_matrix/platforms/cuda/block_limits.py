"""What a block may use on the GPUs of a compute capability, as data (``limits.toml``).

What compiles for an architecture may still ask for more than it has, and then cannot be launched.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SMALLEST_BLOCK = 32
"""Threads of the smallest block that uses a warp whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLimits:
    """The limits of one compute capability."""

    compute_capability: str
    shared_bytes: int
    """Shared memory that one block may have, all that can be asked for included."""
    registers_per_block: int
    multiprocessors: int
    """SMs of a usual GPU of the kind."""
    source: str
    confidence: str


@cache
def known_limits() -> dict[str, BlockLimits]:
    """Compute capability → its limits, in the order of the table."""
    document = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    rows = (BlockLimits(**row) for row in document["limits"])
    return {row.compute_capability: row for row in rows}


def limits_of(compute_capability: str) -> BlockLimits | None:
    """The limits of ``9.0`` (or ``9.0a``); null where the table has none."""
    return known_limits().get(compute_capability.rstrip("af"))


def launch_obstacle(*, arch: int, registers: int, shared_bytes: int, threads: int = SMALLEST_BLOCK) -> str:
    """Why a kernel could not be launched there, in words; empty where nothing is known to speak against it.

    :param arch: compute capability × 10.
    :param registers: per thread.
    :param threads: per block, where that is known.
    """
    limits = limits_of(f"{arch // 10}.{arch % 10}")
    if limits is None:
        return ""
    if shared_bytes > limits.shared_bytes:
        return (
            f"it needs {shared_bytes} bytes of shared memory per block, "
            f"and compute capability {limits.compute_capability} has {limits.shared_bytes}"
        )
    if registers * threads > limits.registers_per_block:
        return (
            f"a block of {threads} threads needs {registers * threads} registers, "
            f"and compute capability {limits.compute_capability} has {limits.registers_per_block}"
        )
    return ""
