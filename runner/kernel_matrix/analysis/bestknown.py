"""The best-known time of any implementation per problem, dtype, workload and GPU.

It is the reference of application efficiency. The table is frozen, because one more candidate in the results would
otherwise change the efficiency of all others. It is made once, kept as a file under version control, and named by its
content hash wherever it is used. Its times are geometric means over the session medians of *one* implementation. The
least of many noisy times is biased low, so a winner with few sessions should be checked.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import polars as pl

from kernel_matrix.analysis.standings import Standing, standings
from kernel_matrix.errors import NothingSelectedError, StoreError, UsageError
from kernel_matrix.model.enums import Implementation
from kernel_matrix.untrusted_json import JsonFault, UntrustedJsonError, read_object

VERSION: Final = 1
"""Version of the file format."""

BASELINE: Final = Implementation.EAGER.value
"""The baseline's name in the column ``candidate``."""

KEY: Final = ("problem", "dtype", "workload", "gpu")

BEST: Final[dict[str, pl.DataType]] = {
    **{name: pl.String() for name in KEY},
    "best_ns": pl.Float64(),
    "candidate": pl.String(),
    "candidate_sha256": pl.String(),
    "problem_sha256": pl.String(),
    "toolchain": pl.String(),
    "sessions": pl.Int64(),
}
"""Columns. ``candidate``: the fastest implementation, :data:`BASELINE` for the baseline; ``toolchain``: its own."""

_VERSION_KEY: Final = "kernel_matrix_best_known"
_NULLABLE: Final = ("dtype", "candidate_sha256", "problem_sha256", "toolchain", "sessions")


@dataclass(frozen=True, slots=True)
class BestKnown:
    """The table with the columns of :data:`BEST`, sorted by :data:`KEY`, each key once, and its content hash."""

    table: pl.DataFrame
    sha256: str


def make(table: pl.DataFrame) -> BestKnown:
    """Find the best times in standings where the GPU is known; among equal times the first name wins."""
    timed = table.lazy().filter(pl.col("gpu").is_not_null() & (pl.col("standing") == Standing.PASSED.value))
    shared = (*KEY, "problem_sha256", "toolchain")
    of_candidates = timed.select(
        *shared, "candidate", "candidate_sha256", "sessions", best_ns=pl.col("candidate_ns")
    ).drop_nulls("best_ns")
    of_baselines = timed.drop_nulls("baseline_ns").select(
        *shared,
        candidate=pl.lit(BASELINE),
        candidate_sha256=pl.lit(None, pl.String),
        sessions=pl.col("baseline_sessions"),
        best_ns=pl.col("baseline_ns"),
    )
    # Every cell times the baseline again: take the median over cells, because the least would be a lucky one.
    middle = of_baselines.group_by(shared).agg(
        pl.col("candidate", "candidate_sha256").first(), pl.col("sessions").sum(), pl.col("best_ns").median()
    )
    order = ("best_ns", "candidate", "toolchain")
    columns = [pl.col(name).cast(dtype) for name, dtype in BEST.items()]
    rivals = pl.concat([part.select(columns) for part in (of_candidates, middle)])
    fastest = rivals.filter(pl.col("best_ns") == pl.col("best_ns").min().over(KEY))
    return _hashed(fastest.sort(*KEY, *order).unique(KEY, keep="first", maintain_order=True).collect())


def freeze(cells: pl.LazyFrame, path: Path) -> BestKnown:
    """Write the best-known times of the table ``cells`` to ``path``.

    Raises:
        NothingSelectedError: Nothing passed and was timed on a named GPU.
        StoreError: The file cannot be written.
    """
    best = make(standings(cells).table)
    if best.table.is_empty():
        raise NothingSelectedError(
            "there is no best-known time: nothing passed and was timed on a named GPU",
            next_step="Freeze tables in which something passed.",
        )
    write(best, path)
    return best


def write(best: BestKnown, path: Path) -> None:
    """Write ``best`` as JSON, one row per line for readable diffs.

    Raises:
        StoreError: The file cannot be written.
    """
    head = orjson.dumps({_VERSION_KEY: VERSION, "sha256": best.sha256})[:-1]
    rows = b",\n".join(orjson.dumps(row) for row in best.table.iter_rows(named=True))
    try:
        path.write_bytes(head + b',"best":[\n' + rows + b"\n]}\n")
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}", next_step="Name another file.") from None


def read(path: Path) -> BestKnown:
    """Read a table that :func:`write` wrote.

    Raises:
        UsageError: The file cannot be read.
        StoreError: The file is damaged, has another version or an invalid row, or does not match its hash.
    """
    try:
        document = read_object(path, max_bytes=1 << 30, follow_links=True)
    except UntrustedJsonError as error:
        if error.fault is JsonFault.NOT_JSON:
            raise _damaged(path, f"cannot be read: {error}") from None
        raise UsageError(f"{path}: {error}", next_step="Name a table that --freeze-best-known wrote.") from None
    if document.get(_VERSION_KEY) != VERSION:
        raise _damaged(path, f"is not a table of best-known times of version {VERSION}")
    rows = document.get("best")
    if not isinstance(rows, list):
        raise _damaged(path, "has no list `best`")
    for number, row in enumerate(rows, start=1):
        if fault := _fault(row):
            raise _damaged(path, f"row {number}: {fault}")
    table = pl.DataFrame(rows, schema=BEST)
    if table.select(KEY).is_duplicated().any():
        raise _damaged(path, f"has two rows with the same {', '.join(KEY)}")
    best = _hashed(table.sort(KEY))
    if best.sha256 != document.get("sha256"):
        raise _damaged(path, f"was changed after it was frozen: its content hash is now {best.sha256[:12]}…")
    return best


def _fault(row: Any) -> str:
    """Describe the first error of a row of the file; empty if it has none."""
    if not isinstance(row, dict) or set(row) != set(BEST):
        return f"a row has exactly {', '.join(BEST)}"
    for name, dtype in BEST.items():
        value = row[name]
        if value is None and name in _NULLABLE:
            continue
        wanted: tuple[type, ...] = (str,) if dtype == pl.String() else (int,) if dtype == pl.Int64() else (int, float)
        if not isinstance(value, wanted) or isinstance(value, bool):
            return f"`{name}` is {value!r}"
    return "" if row["best_ns"] > 0 else f"`best_ns` is {row['best_ns']!r}, which is not above 0"


def _damaged(path: Path, what: str) -> StoreError:
    return StoreError(f"{path} {what}", next_step="Freeze a new table of best-known times, or fetch the unchanged one.")


def _hashed(table: pl.DataFrame) -> BestKnown:
    """Hash ``table`` by the binary values of its columns, independently of number formatting."""
    digest = hashlib.sha256(str(VERSION).encode())
    for name, dtype in BEST.items():
        column = table[name]
        digest.update(f"\n{name} {len(column)}\n".encode())
        if dtype == pl.Float64():
            digest.update(column.to_numpy().astype("<f8").tobytes())
        else:
            digest.update("\0".join(column.cast(pl.String).fill_null("\1").to_list()).encode())
    return BestKnown(table, digest.hexdigest())


@dataclass(frozen=True, slots=True)
class EfficiencyTable:
    """Standings with the column ``efficiency``, and notes on cells without one."""

    table: pl.DataFrame
    notes: tuple[str, ...]


def with_efficiency(table: pl.DataFrame, best: BestKnown) -> EfficiencyTable:
    """Add application efficiency: best-known time of any implementation ÷ the candidate's time.

    See Pennycook, Sewall and Lee, *A Metric for Performance Portability*, 2016, arXiv 1611.07409. Null where nothing
    passed or was timed, where ``best`` has no such cell, and where the problem's content changed since. Above 1 where
    the candidate is faster than the frozen best time. ``table`` holds standings.
    """
    known = best.table.lazy().select(
        *(pl.col(name).cast(table.schema[name]) for name in KEY), "best_ns", _best_of=pl.col("problem_sha256")
    )
    same = (pl.col("_best_of") == pl.col("problem_sha256")).fill_null(value=True)
    joined = (
        table.lazy()
        .join(known, on=KEY, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(_same=same, _timed=pl.col("candidate_ns").is_not_null())
        .with_columns(efficiency=pl.when("_same").then(pl.col("best_ns") / pl.col("candidate_ns")))
        .collect()
    )
    unknown = joined.filter(pl.col("_timed") & pl.col("best_ns").is_null()).height
    stale = joined.filter(pl.col("_timed") & pl.col("best_ns").is_not_null() & ~pl.col("_same")).height
    better = int((joined["efficiency"] > 1).sum())
    notes = [f"Application efficiency is relative to best-known times with content hash {best.sha256}."]
    if unknown:
        notes.append(f"{unknown} timed cells have no best-known time, and so no efficiency.")
    if stale:
        notes.append(f"{stale} timed cells have another content of the problem than their best-known time.")
    if better:
        notes.append(f"{better} cells are faster than the best-known time: freeze a new table to keep efficiency ≤ 1.")
    return EfficiencyTable(joined.drop("_best_of", "_same", "_timed"), tuple(notes))
