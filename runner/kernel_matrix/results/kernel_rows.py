"""Rows and columns about kernels, from one checked record: kernels that were built and kernels that were traced."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernel_matrix.results.derived_columns import BUILT, TRACED
from kernel_matrix.results.described_columns import Row
from kernel_matrix.results.reading import Document

_LARGEST = {
    "registers_max": ("registers",),
    "spill_bytes_max": ("spill_store_bytes", "spill_load_bytes"),
    "shared_bytes_max": ("shared_bytes",),
    "stack_bytes_max": ("stack_bytes",),
}
"""Column of ``cells`` → fields of a kernel; the column is the largest sum of these fields."""


def kernel_rows(record: Document, *, key: int) -> Iterator[Row]:
    """Yield the rows of ``kernels``: one per built kernel, and one per session and traced kernel.

    Args:
        record: A checked record.
        key: The record's number within the tables.
    """
    for kernel in (record["host"].get("build") or {}).get("kernels", ()):
        yield {"record": key, "origin": BUILT, **kernel}
    for session in record["sessions"]:
        for kernel in session.get("kernels", ()):
            yield {"record": key, "session": session["session"], "origin": TRACED, **kernel}


def build_columns(build: Mapping[str, Any] | None) -> Row:
    """Return the columns of ``cells`` about kernels that were built ahead of time; empty if there are none."""
    if build is None:
        return {}
    kernels = build["kernels"]
    if not kernels:
        return {}
    row: Row = {column: max(sum(k[f] for f in summed) for k in kernels) for column, summed in _LARGEST.items()}
    return row | {"code_sha256": _digest(kernels), "launchable": all(k["launchable"] for k in kernels)}


def _digest(kernels: Sequence[Mapping[str, Any]]) -> str:
    """Return a digest of all machine code, which does not depend on the toolchain or on kernel names."""
    return hashlib.sha256("".join(sorted(kernel["sha256"] for kernel in kernels)).encode()).hexdigest()


def traced_columns(kernels: Sequence[Mapping[str, Any]]) -> Row:
    """Return the columns of ``cells`` about the traced kernels of a session; empty if nothing was traced."""
    if not kernels:
        return {}
    # Interpreted kernels have no device time, so count launches instead.
    weight = "device_ns" if any(kernel["device_ns"] for kernel in kernels) else "launches"
    total = sum(kernel[weight] for kernel in kernels)
    own = sum(kernel[weight] for kernel in kernels if kernel["own"])
    return {
        "kernels_seen": len(kernels),
        "launches_per_call": sum(kernel["launches"] for kernel in kernels),
        "own_kernel_share": own / total if total else None,
    }
