"""The best-known time of any implementation per problem, dtype, workload and GPU.

It is the reference of application efficiency. The table is frozen, because one more candidate in the results would
otherwise change the efficiency of all others. It is made once, kept as a file under version control, and named by its
content hash wherever it is used. Its times are those of the fastest implementation, corrected for the choice by
:mod:`kernel_matrix.analysis.fastest`, since the least of many noisy times is too low; where the tables do not show the
noise, they are the least times.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import polars as pl

from kernel_matrix.analysis.fastest import LEAST, SURE, Fastest, NoisyTimes, fastest
from kernel_matrix.analysis.standings import Standing, standings
from kernel_matrix.errors import NothingSelectedError, StoreError, UsageError
from kernel_matrix.model.enums import Implementation
from kernel_matrix.untrusted_json import JsonFault, UntrustedJsonError, read_object

VERSION: Final = 1
"""Version of the file format."""

BASELINE: Final = Implementation.EAGER.value
"""The baseline's name in the column ``candidate``."""

KEY: Final = ("problem", "dtype", "workload", "gpu", "ranks")

BEST: Final[dict[str, pl.DataType]] = {
    **dict.fromkeys(("problem", "dtype", "workload", "gpu"), pl.String()),
    "ranks": pl.Int64(),
    "best_ns": pl.Float64(),
    "candidate": pl.String(),
    "candidate_sha256": pl.String(),
    "problem_sha256": pl.String(),
    "toolchain": pl.String(),
    "sessions": pl.Int64(),
}
"""Columns. ``candidate``: the fastest implementation, :data:`BASELINE` for the baseline; ``toolchain``: its own."""

_VERSION_KEY: Final = "kernel_matrix_best_known"
_RANKS: Final = "ranks"
"""Column that the first tables lack, whose problems are all of one rank; their hash must stay."""
_NULLABLE: Final = ("dtype", "candidate_sha256", "problem_sha256", "toolchain", "sessions")


@dataclass(frozen=True, slots=True)
class BestKnown:
    """The table with the columns of :data:`BEST`, sorted by :data:`KEY`, each key once, and its content hash."""

    table: pl.DataFrame
    sha256: str


def make(table: pl.DataFrame) -> BestKnown:
    """Find the best times in standings where the GPU is known; among equal times the first name wins."""
    rivals = _rivals(table)
    return _best(rivals, _fastest(rivals))


def _best(rivals: pl.DataFrame, found: Fastest) -> BestKnown:
    columns = [pl.col(name).cast(dtype) for name, dtype in BEST.items()]
    with_best = rivals.with_columns(best_ns=pl.Series(np.exp(found.best))[rivals["_key"]] * pl.col("_least"))
    first = with_best.sort(*KEY, "_ns", "candidate", "toolchain").unique(KEY, keep="first", maintain_order=True)
    return _hashed(first.select(columns))


def _rivals(table: pl.DataFrame) -> pl.DataFrame:
    """Make one row per implementation timed on a named GPU: candidates in a toolchain, and baselines.

    ``_ns`` is its time with standard error ``_error``, ``_key`` numbers :data:`KEY`, ``_least`` is the least time.
    """
    timed = table.lazy().filter(pl.col("gpu").is_not_null() & (pl.col("standing") == Standing.PASSED.value))
    shared = (*KEY, "problem_sha256", "toolchain")
    of_candidates = timed.select(
        *shared,
        "candidate",
        "candidate_sha256",
        pl.col("sessions").cast(pl.Int64),
        _ns=pl.col("candidate_ns"),
        _error=pl.col("log_error"),
        _degrees=pl.col("log_degrees"),
    ).drop_nulls("_ns")
    # Every cell times the baseline again: take the median over cells, because the least would be a lucky one.
    count = pl.len().cast(pl.Float64)
    of_baselines = (
        timed.drop_nulls("baseline_ns")
        .group_by(shared)
        .agg(
            pl.lit(BASELINE).alias("candidate"),
            pl.lit(None, pl.String).alias("candidate_sha256"),
            pl.col("baseline_sessions").sum().cast(pl.Int64).alias("sessions"),
            pl.col("baseline_ns").median().alias("_ns"),
            # The variance of a median is π/2 times that of a mean.
            (
                pl.col("baseline_error").median() * (pl.when(count > 2).then(np.pi / 2).otherwise(1.0) / count).sqrt()
            ).alias("_error"),
            pl.col("baseline_degrees").median().alias("_degrees"),
        )
    )
    texts = [name for name, dtype in BEST.items() if dtype == pl.String()]
    parts = [
        part.with_columns(pl.col(name).cast(pl.String) for name in texts) for part in (of_candidates, of_baselines)
    ]
    rows = pl.concat([part.select(*shared, "candidate", "candidate_sha256", "sessions", *_TIMES) for part in parts])
    return (
        rows.sort(*KEY, "candidate", "toolchain", "problem_sha256")
        .with_columns(_key=pl.struct(KEY).rle_id().cast(pl.Int64), _least=pl.col("_ns").min().over(KEY))
        .collect()
    )


_TIMES: Final = ("_ns", "_error", "_degrees")


def _fastest(rivals: pl.DataFrame) -> Fastest:
    """Find the best time of each key, relative to the least there."""
    error, degrees = (rivals[name].fill_null(np.nan).to_numpy() for name in ("_error", "_degrees"))
    log_ns = (rivals["_ns"] / rivals["_least"]).log().to_numpy()
    return fastest(NoisyTimes(log_ns, error**2, degrees), rivals["_key"].to_numpy(), LEAST)


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
    rows = [{_RANKS: 1, **row} if isinstance(row, dict) else row for row in rows]
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
        if name == _RANKS and (column == 1).all():
            continue
        digest.update(f"\n{name} {len(column)}\n".encode())
        if dtype == pl.Float64():
            digest.update(column.to_numpy().astype("<f8").tobytes())
        else:
            digest.update("\0".join(column.cast(pl.String).fill_null("\1").to_list()).encode())
    return BestKnown(table, digest.hexdigest())


@dataclass(frozen=True, slots=True)
class EfficiencyTable:
    """Standings with the columns ``efficiency`` and those of :data:`DISTANCE`, and notes on cells without one."""

    table: pl.DataFrame
    notes: tuple[str, ...]


DISTANCE: Final = ("log_behind", "behind_error", "behind_degrees")
"""Columns: logarithm of a cell's time ÷ the best-known one of any other implementation, its standard error, null where
the noise is unknown, and its degrees of freedom."""


def with_efficiency(table: pl.DataFrame, best: BestKnown) -> EfficiencyTable:
    """Add application efficiency: best-known time of any implementation ÷ the candidate's time.

    See Pennycook, Sewall and Lee, *A Metric for Performance Portability*, 2016, arXiv 1611.07409. Null where nothing
    passed or was timed, where ``best`` has no such cell, and where the problem's content changed since. Above 1 where
    the candidate is faster than the frozen best time, which counts as exact. ``table`` holds standings.
    """
    joined, notes = _joined(table, best)
    better = int((joined["efficiency"] > 1).sum())
    if better:
        notes.append(f"{better} cells are faster than the best-known time: freeze a new table to keep efficiency ≤ 1.")
    distances = (-pl.col("efficiency").log(), pl.col("log_error"), pl.col("log_degrees"))
    columns = [column.alias(name) for column, name in zip(distances, DISTANCE, strict=True)]
    return EfficiencyTable(joined.with_columns(columns), tuple(notes))


def with_own_efficiency(table: pl.DataFrame) -> EfficiencyTable:
    """Add application efficiency against the best times of the standings themselves; at most 1.

    Null also where the candidate is the only implementation: its efficiency would be 1 whatever its time is.
    """
    rivals = _rivals(table)
    found = _fastest(rivals)
    joined, notes = _joined(table, _best(rivals, found))
    where = [*KEY, "toolchain", "candidate"]
    others = _distances(rivals, found).with_columns(pl.col(name).cast(table.schema[name]) for name in where)
    joined = joined.join(others, on=where, how="left", nulls_equal=True, maintain_order="left")
    usable = pl.col("efficiency").is_not_null() & (pl.col("_others") > 0)
    alone, against_baseline = joined.select(
        (pl.col("_others") == 0).sum(), ((pl.col("_others") == 1) & pl.col("_baseline")).sum().alias("_2")
    ).row(0)
    if alone:
        notes.append(
            f"{alone} cells have the only implementation that was timed on their GPU: they have no efficiency, which "
            "would be 1 whatever their time is."
        )
    if against_baseline:
        notes.append(
            f"{against_baseline} cells have no other candidate beside them: their efficiency compares with the "
            "baseline only, and is 1 wherever they are not slower."
        )
    efficiency = pl.when(usable).then(pl.col("efficiency").clip(upper_bound=1.0)).alias("efficiency")
    kept = [pl.when(usable).then(name).alias(name) for name in DISTANCE]
    return EfficiencyTable(joined.with_columns(efficiency, *kept).drop("_others", "_baseline"), tuple(notes))


def _distances(rivals: pl.DataFrame, found: Fastest) -> pl.DataFrame:
    """Compute :data:`DISTANCE` for every candidate, and count the other implementations beside it."""
    values = (found.behind, np.where(found.doubtful, np.nan, np.sqrt(found.variance)), found.degrees)
    distances = [pl.Series(name, value).fill_nan(None) for name, value in zip(DISTANCE, values, strict=True)]
    behind, error, degrees = (pl.col(name) for name in DISTANCE)
    # The best-known time of a candidate that is ahead of all others is its own: it is exact then.
    ahead = pl.when(error.is_null()).then(behind < 0).otherwise(behind < -SURE * error)
    of_baseline = pl.col("candidate") == BASELINE
    return (
        rivals.with_columns(distances)
        .with_columns(
            pl.when(ahead).then(0.0).otherwise(behind).alias(DISTANCE[0]),
            pl.when(ahead & error.is_not_null()).then(0.0).otherwise(error).alias(DISTANCE[1]),
            pl.when(ahead & degrees.is_not_null()).then(np.inf).otherwise(degrees).alias(DISTANCE[2]),
            (pl.col("candidate").n_unique().over(KEY) - 1).alias("_others"),
            of_baseline.any().over(KEY).alias("_baseline"),
        )
        .filter(~of_baseline)
        .select(*KEY, "toolchain", "candidate", *DISTANCE, "_others", "_baseline")
    )


def _joined(table: pl.DataFrame, best: BestKnown) -> tuple[pl.DataFrame, list[str]]:
    """Add ``efficiency`` against ``best``; also returns notes on cells without one."""
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
    notes = [f"Application efficiency is relative to best-known times with content hash {best.sha256}."]
    if unknown:
        notes.append(f"{unknown} timed cells have no best-known time, and so no efficiency.")
    if stale:
        notes.append(f"{stale} timed cells have another content of the problem than their best-known time.")
    return joined.drop("_best_of", "_same", "_timed"), notes
