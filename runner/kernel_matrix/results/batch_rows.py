"""Rows of the table ``batches``, from one checked record document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernel_matrix.results.described_columns import Row
from kernel_matrix.results.judged import times_of
from kernel_matrix.results.reading import Document

_PER_BATCH = ("calls", "delivered_ns", "least_ns", "wall_ns", "handover_ns")
"""Fields of a block of batches that have a value for each batch."""


def batch_rows(record: Document, *, key: int) -> Iterator[Row]:
    """Yield a row per batch of ``record``, whose number within the tables is ``key``."""
    timed = [(session["session"], workload) for session in record["sessions"] for workload in session["workloads"]]
    times = times_of(record) if any(workload.get("batches") for _, workload in timed) else {}
    for session, workload in timed:
        if blocks := workload.get("batches"):
            where = {"record": key, "session": session, "workload": workload["name"]}
            in_blocks = times[session, workload["name"]].times_in_batches()
            for number, (block, call_ns) in enumerate(zip(blocks, in_blocks, strict=True)):
                yield from _rows_of_block({**where, "block": number}, block, call_ns)


def _rows_of_block(where: Row, block: Mapping[str, Any], call_ns: Sequence[float]) -> Iterator[Row]:
    of_block = {
        **where,
        "contestant": block["contestant"],
        "block_started_ns": block["started_ns"],
        "block_ended_ns": block["ended_ns"],
        "captured": block["captured"],
        "short": block["short"],
        "in_place": block.get("in_place", False),
        "discarded": block.get("discarded"),
        "sm_clock_mhz": block.get("sm_clock_mhz"),
    }
    for index, values in enumerate(zip(*(block[name] for name in _PER_BATCH), strict=True)):
        time_ns = call_ns[index] if call_ns else None
        yield {**of_block, "index": index, "call_ns": time_ns, **dict(zip(_PER_BATCH, values, strict=True))}
