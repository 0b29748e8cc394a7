"""Limits of a block on the GPUs of a compute capability, from a table (``block_limits.toml``).

A kernel that compiles for an architecture may still need more than a block can have, and then cannot be launched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernel_matrix.platforms.data_sheets import architecture_of
from kernel_matrix.toml_text import parse_toml

_WARP = 32
SMALLEST_BLOCK = _WARP
"""Threads of the smallest block that fills a warp."""

_PARTS = 4
"""Parts of an SM, each with its own warps and registers."""
_REGISTER_UNIT, _SHARED_UNIT = 256, 128
"""Registers of a warp, and bytes of shared memory of a block, are allocated in multiples of these."""


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


def launch_failure_reason(
    compute_capability: str, *, registers: int, shared_bytes: int, threads: int = SMALLEST_BLOCK
) -> str:
    """Return why a kernel could not be launched; empty if no reason is known.

    Args:
        compute_capability: compute capability that it was compiled for.
        registers: registers per thread.
        shared_bytes: shared memory per block.
        threads: threads per block, if known.
    """
    limits = limits_of(compute_capability)
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


def occupancy(compute_capability: str, *, registers: int, shared_bytes: int, threads: int) -> float | None:
    """Return the share of an SM's threads that a kernel can occupy at most, as the CUDA occupancy calculator does.

    Args:
        compute_capability: compute capability that it was compiled for.
        registers: registers per thread.
        shared_bytes: shared memory per block.
        threads: threads per block, at least 1.

    Returns:
        The share, 0 for a block that does not fit; ``None`` if the compute capability is not known.
    """
    sm = architecture_of(compute_capability)
    if sm is None:
        return None
    warps = -(-threads // _WARP)
    blocks = [sm.threads_per_sm // (warps * _WARP)]
    if sm.blocks_per_sm is not None:
        blocks.append(sm.blocks_per_sm)
    if registers:
        per_part = sm.registers_per_sm // _PARTS // _up(registers * _WARP, _REGISTER_UNIT)
        blocks.append(_PARTS * per_part // warps)
    if needed := _up(shared_bytes + sm.reserved_bytes_per_block, _SHARED_UNIT):
        blocks.append(sm.shared_bytes_per_sm // needed)
    return min(blocks) * warps * _WARP / sm.threads_per_sm


def _up(number: int, unit: int) -> int:
    """Return the smallest multiple of ``unit`` that is not below ``number``."""
    return -(-number // unit) * unit
