"""From one checked record to what it says of kernels: those that a compiler made, and those that were seen to run."""

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
"""Column of ``cells`` → fields of a kernel whose sum is largest there."""


def kernel_rows(record: Document, *, key: int) -> Iterator[Row]:
    """Rows of ``kernels``: one per kernel that was built, and one per session and kernel that was seen to run.

    :param key: the record's number within the tables.
    """
    for kernel in (record["host"].get("build") or {}).get("kernels", ()):
        yield {"record": key, "origin": BUILT, **kernel}
    for session in record["sessions"]:
        for kernel in session.get("kernels", ()):
            yield {"record": key, "session": session["session"], "origin": TRACED, **kernel}


def build_columns(build: Mapping[str, Any] | None) -> Row:
    """Columns of ``cells`` about the kernels that were built ahead; none where there are none."""
    if build is None:
        return {}
    kernels = build["kernels"]
    if not kernels:
        return {}
    row: Row = {column: max(sum(k[f] for f in summed) for k in kernels) for column, summed in _LARGEST.items()}
    return row | {"code_sha256": _digest(kernels), "launchable": all(k["launchable"] for k in kernels)}


def _digest(kernels: Sequence[Mapping[str, Any]]) -> str:
    """Of all machine code: equal where every kernel's is, whatever toolchain made it and whatever it is called."""
    return hashlib.sha256("".join(sorted(kernel["sha256"] for kernel in kernels)).encode()).hexdigest()


def seen_columns(kernels: Sequence[Mapping[str, Any]]) -> Row:
    """Columns of ``cells`` about the kernels that were seen to run in a session; none where nothing was traced."""
    if not kernels:
        return {}
    # An interpreter runs kernels without a device that could time them.
    weight = "device_ns" if any(kernel["device_ns"] for kernel in kernels) else "launches"
    total = sum(kernel[weight] for kernel in kernels)
    own = sum(kernel[weight] for kernel in kernels if kernel["own"])
    return {"kernels_seen": len(kernels), "own_kernel_share": own / total if total else None}
