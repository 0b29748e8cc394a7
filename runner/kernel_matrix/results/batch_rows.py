"""Rows of the table ``batches``, from one checked record document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernel_matrix.results.described_columns import Row
from kernel_matrix.results.judged import Sessions
from kernel_matrix.results.reading import Document

_PER_BATCH = ("calls", "delivered_ns", "least_ns", "wall_ns", "handover_ns")
"""Fields of a block of batches that have a value for each batch."""


def batch_rows(record: Document, times: Sessions, *, key: int) -> Iterator[Row]:
    """Yield a row per batch.

    Args:
        record: A checked record.
        times: Its times, from :func:`~kernel_matrix.results.judged.times_of`.
        key: The record's number within the tables.
    """
    for session in record["sessions"]:
        for workload in session["workloads"]:
            where = {"record": key, "session": session["session"], "workload": workload["name"]}
            in_blocks = times[session["session"], workload["name"]].times_in_batches()
            for number, (block, call_ns) in enumerate(zip(workload.get("batches", ()), in_blocks, strict=True)):
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
