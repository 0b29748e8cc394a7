"""Limits of a block on the GPUs of a compute capability, from a table (``block_limits.toml``).

A kernel that compiles for an architecture may still need more than a block can have, and then cannot be launched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernel_matrix.toml_text import parse_toml

SMALLEST_BLOCK = 32
"""Threads of the smallest block that fills a warp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLimits:
    """Limits of one compute capability."""

    compute_capability: str
    shared_bytes: int
    """Maximum shared memory of a block, including what it must opt in to."""
    registers_per_block: int
    multiprocessors: int
    """SMs of a typical GPU of this compute capability."""
    source: str
    confidence: str


@cache
def known_limits() -> dict[str, BlockLimits]:
    """Return compute capability → its limits, in the order of the table."""
    document = parse_toml(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    rows = (BlockLimits(**row) for row in document["limits"])
    return {row.compute_capability: row for row in rows}


def limits_of(compute_capability: str) -> BlockLimits | None:
    """Return the limits of a compute capability (``9.0`` or ``9.0a``); ``None`` if it is not in the table."""
    return known_limits().get(compute_capability.rstrip("af"))


def launch_failure_reason(*, arch: int, registers: int, shared_bytes: int, threads: int = SMALLEST_BLOCK) -> str:
    """Return why a kernel could not be launched; empty if no reason is known.

    Args:
        arch: compute capability × 10.
        registers: registers per thread.
        shared_bytes: shared memory per block.
        threads: threads per block, if known.
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
