"""Tables for tests: rows of ``cells`` from the given columns, all others as in a passed cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import polars as pl

from kernel_matrix.analysis.tables import Tables
from kernel_matrix.results.schema import CELLS, TABLES

START = datetime(2026, 3, 1, 22, tzinfo=timezone.utc)
STEADY = (100.0, 100.3, 99.8, 100.1, 99.9)
"""Session medians, in nanoseconds, that differ by noise only."""
SLOWER = tuple(value * 1.05 for value in STEADY)
"""The same, 5 % slower: a regression against :data:`STEADY`."""
_USUAL: Mapping[str, Any] = {
    "attempt": 1,
    "matrix": "made",
    "toolchain": "cu130",
    "dtype": "fp32",
    "problem": "softmax",
    "ranks": 1,
    "category": "Reduce",
    "level": 1,
    "source": "folder",
    "language": "triton",
    "tier": "publish",
    "expect": "passed",
    "status": "passed",
    "stage": "done",
    "fault": "none",
    "message": "",
    "session": 0,
    "session_status": "passed",
    "session_stage": "done",
    "workload": "default",
    "workload_status": "passed",
    "candidate_samples": 50,
    "baseline_samples": 50,
    "spread_within": 0.005,
    "verdict": "faster",
    "session_verdict": "faster",
    "grade": "A",
    "hostname": "node1",
    "host_id": "host1",
    "gpu_name": "NVIDIA H200",
    "gpu_uuid": "GPU-1",
    "driver": "580.1",
    "image_id": "sha256:1",
    "engine": "docker",
    "exclusive": "proven",
    "clock_state": "locked",
    "torch": "2.13.0",
    "labels": [],
    "findings": [],
    "warnings": [],
}


_EMPTY = {name: pl.DataFrame(schema=columns) for name, columns in TABLES.items()}


def cell(**columns: Any) -> dict[str, Any]:
    """One row of ``cells``; columns that follow from the given ones (ids, speed-up, fault, times) are filled in.

    :param columns: names of ``CELLS``; ``night=3`` starts the run three days after :data:`START`.
    """
    night = columns.pop("night", 0)
    at = START + timedelta(days=night)
    row = {"gpu": "h200", "candidate": "softmax/triton_row", **_USUAL, **columns}
    row.setdefault("run_id", f"run-{night}")
    row.setdefault("run_started_at", at)
    row.setdefault("started_at", at + timedelta(minutes=1))
    row.setdefault("ended_at", at + timedelta(minutes=2))
    key = (row["matrix"], row["gpu"], row["toolchain"], row["dtype"], row["problem"], row["candidate"])
    row.setdefault("cell_id", "/".join(str(part) for part in key))
    row.setdefault("candidate_sha256", f"of {row['candidate']}")
    row.setdefault("problem_sha256", f"of {row['problem']}")
    baseline, candidate = row.get("baseline_median_ns"), row.get("candidate_median_ns")
    if baseline and candidate:
        row.setdefault("speedup", baseline / candidate)
    return row


def cells(rows: Iterable[Mapping[str, Any]]) -> pl.LazyFrame:
    """The table ``cells`` of ``rows``, in this order; rows with the same cell, run and attempt are one record."""
    numbers: dict[tuple[Any, ...], int] = {}
    numbered = []
    for row in rows:
        key = (row["run_id"], row["cell_id"], row["attempt"], row["host_id"], row["gpu_uuid"])
        numbered.append({**row, "record": row.get("record", numbers.setdefault(key, len(numbers)))})
    return frame("cells", numbered).lazy()


def frame(name: str, rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return ``rows`` as the table ``name``; columns that a row does not have are null."""
    kept = list(rows)
    return pl.from_dicts(kept, schema=TABLES[name]) if kept else _EMPTY[name]


def tables(rows: Iterable[Mapping[str, Any]]) -> Tables:
    """Tables of which only ``cells`` has rows."""
    return Tables(cells=cells(rows), **{name: empty.lazy() for name, empty in _EMPTY.items() if name != "cells"})


def write(folder: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """The same as files in ``folder``, as ``merge`` writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    made = tables(rows)
    for name in TABLES:
        getattr(made, name).collect().write_parquet(folder / f"{name}.parquet")
    return folder


def over_sessions(medians_ns: Iterable[tuple[float, float]], **columns: Any) -> Iterator[dict[str, Any]]:
    """One row per session of one cell, from (baseline, candidate) medians in nanoseconds."""
    for number, (baseline, candidate) in enumerate(medians_ns):
        yield cell(session=number, baseline_median_ns=baseline, candidate_median_ns=candidate, **columns)


def two_nights() -> Iterator[dict[str, Any]]:
    """Rows of a problem with one and with two ranks on two GPUs, each in two nights of three sessions."""
    for gpu in ("a", "b"):
        for night in range(2):
            for ranks in (1, 2):
                medians_ns = [(200.0, 100.0), (201.0, 99.0 + night), (200.0, 101.0)]
                yield from over_sessions(medians_ns, gpu=gpu, night=night, ranks=ranks, cell_id=f"{gpu} {ranks}")


def timed(medians_ns: Iterable[float], **columns: Any) -> list[dict[str, Any]]:
    """One row per session of one cell, eager at 200 ns."""
    return list(over_sessions([(200.0, median) for median in medians_ns], **columns))


def failed(**columns: Any) -> dict[str, Any]:
    """One row of a cell that crashed by its own fault before any workload."""
    return cell(**{"status": "crashed", "fault": "candidate", "message": "signal 11", "workload": None, **columns})


assert set(_USUAL) <= set(CELLS)
