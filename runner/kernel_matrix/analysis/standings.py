"""Standings: the outcomes of each cell on all hosts and units combined, one row per :data:`CELL_KEY`.

Portability, ranks and sensitivity start here, so that they agree on what passes, fails and is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from kernel_matrix.analysis.differences import SIZES_NS
from kernel_matrix.analysis.outcomes import CELL_KEY, OUTCOMES, aggregate, may_repeat, outcomes, sessions
from kernel_matrix.analysis.slices import columns_of
from kernel_matrix.analysis.time_noise import run_noise, standard_errors
from kernel_matrix.analysis.timed_sessions import log_of
from kernel_matrix.errors import NothingSelectedError, UsageError
from kernel_matrix.model.enums import Fault, Status

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
Truths = NDArray[np.bool_]


class Standing(str, Enum):
    """Combined result of a candidate on one GPU, in rising order of precedence.

    Of several hosts or units that ran a cell, the result with the highest precedence holds: a kernel that fails on one
    of two units does not run on that GPU.
    """

    EXCLUDED = "excluded"
    """It cannot run there, for a reason known beforehand: that GPU is not in the platform set."""
    UNKNOWN = "unknown"
    """No result: infrastructure failure, invalid problem, or only built."""
    PASSED = "passed"
    """It passed."""
    FAILED = "failed"
    """It failed by its own fault: not built, not launched, wrong, or too late."""


_WEIGHTS: Final = {standing: weight for weight, standing in enumerate(Standing)}

FACTS: Final = (
    "problem_sha256", "candidate_sha256", "category", "level", "source", "language",
    "origin_method", "origin_model", "origin_round", "candidate_kind",
)  # fmt: skip
"""Columns that are equal in all outcomes of a standing."""

_SHARES: Final = ("flops_share_of_peak", "bytes_share_of_peak", "share_of_peak")

STANDINGS: Final[dict[str, pl.DataType]] = {
    **{name: OUTCOMES[name] for name in (*CELL_KEY, *FACTS)},
    "standing": pl.Enum([standing.value for standing in Standing]),
    "status": OUTCOMES["status"],
    "sessions": pl.UInt32(),
    "candidate_ns": pl.Float64(),
    "log_error": pl.Float64(),
    "log_degrees": pl.Float64(),
    "baseline_ns": pl.Float64(),
    "baseline_sessions": pl.UInt32(),
    "baseline_error": pl.Float64(),
    "baseline_degrees": pl.Float64(),
    "speedup": pl.Float64(),
    **{name: OUTCOMES[name] for name in _SHARES},
}
"""``status``: of the deciding outcome. ``candidate_ns``, ``baseline_ns``, ``speedup``: geometric means over sessions
of all units; null where no time is positive and finite. ``log_error`` and ``baseline_error``: standard errors of the
logarithms of the two times, by :mod:`kernel_matrix.analysis.time_noise`, null where the tables do not show the noise;
``log_degrees`` and ``baseline_degrees``: their degrees of freedom. Shares are medians. All of these are null unless the
cell passed on every unit."""


@dataclass(frozen=True, slots=True)
class Standings:
    """The table with the columns :data:`STANDINGS`, and notes on what was left out."""

    table: pl.DataFrame
    notes: tuple[str, ...]


def standings(cells: pl.LazyFrame) -> Standings:
    """Compute the standing of every cell; collected, since every question uses it several times.

    A cell that failed before any workload counts for all workloads that its problem has elsewhere in the tables.

    Raises:
        NothingSelectedError: There are no cells.
    """
    latest = outcomes(cells).select(
        "record", *CELL_KEY, *FACTS, "status", "started_at", *_SHARES, _weight().alias("_weight")
    )
    # Sorted, so that sums over the same tables are equal to the last digit.
    found = _newest_content(_each_workload(latest.collect()).sort("record", "workload"))
    if found.table.is_empty():
        raise NothingSelectedError("the tables hold no cells", next_step="Run a matrix, or import results, and merge.")
    passed = pl.col("_weight") == _WEIGHTS[Standing.PASSED]
    failed = pl.col("_weight") == _WEIGHTS[Standing.FAILED]
    known = found.table.join(_times(cells).collect(), on=["record", "workload"], how="left", maintain_order="left")
    sums = ("_gain", "_gains", *(f"_{name}_{part}" for name in _MEASURED for part in _MOMENTS))
    runs = [f"_{name}_runs" for name in _MEASURED]
    # Only passed rows are used; masks of rows are much faster than filters in each group.
    known = known.with_columns(pl.when(passed).then(name).alias(name) for name in (*sums, *_SHARES)).with_columns(
        *((pl.col(f"_{name}_n").fill_null(0) > 0).cast(pl.UInt32).alias(f"_{name}_runs") for name in _MEASURED),
        _contradicted=pl.lit(value=False),
        _failed=failed,
    )
    table = (
        aggregate(
            known.lazy()
            .select(*CELL_KEY, *FACTS, "status", "_weight", "_contradicted", "_failed", *sums, *runs, *_SHARES)
            .with_columns(pl.col(sums).fill_null(0)),
            CELL_KEY,
            *(pl.col(name).first() for name in FACTS),
            pl.col("status").get(pl.col("_weight").arg_max()),
            pl.col("_weight").max(),
            (passed.any() & failed.any()).alias("_contradicted"),
            pl.col("_failed").any(),
            *(pl.col(name).sum() for name in (*sums, *runs)),
            *(pl.col(name).median() for name in _SHARES),
        )
        .with_columns(_unless_failed((*sums, *runs)))
        .with_columns(_decided())
        .collect()
    )
    table = _with_errors(table, known)
    return Standings(table.select(*STANDINGS), (*found.notes, *_notes(table), *_unusable(cells)))


def _weight() -> pl.Expr:
    """Compute the precedence of an outcome's :class:`Standing`."""
    return (
        pl.when(pl.col("passed"))
        .then(_WEIGHTS[Standing.PASSED])
        .when(pl.col("counted"))
        .then(_WEIGHTS[Standing.FAILED])
        .when(pl.col("fault") == Fault.UNSUPPORTED.value)
        .then(_WEIGHTS[Standing.EXCLUDED])
        .otherwise(_WEIGHTS[Standing.UNKNOWN])
        .cast(pl.Int8)
    )


def _each_workload(latest: pl.DataFrame) -> pl.DataFrame:
    """Repeat each row without a workload once per workload of its problem (of its dtype, if that has any)."""
    whole = latest.filter(pl.col("workload").is_null()).drop("workload")
    if whole.is_empty():
        return latest
    known = latest.select("problem", "ranks", "dtype", "workload").drop_nulls("workload").unique()
    near = whole.join(known, on=["problem", "ranks", "dtype"], how="left", nulls_equal=True)
    far = (
        near.filter(pl.col("workload").is_null())
        .drop("workload")
        .join(known.select("problem", "workload").unique(), on="problem", how="left")
    )
    parts = (latest.drop_nulls("workload"), near.drop_nulls("workload"), far)
    return pl.concat([part.select(latest.columns) for part in parts])


def _newest_content(latest: pl.DataFrame) -> Standings:
    """Drop outcomes whose problem or candidate has a newer content in the same cell."""
    content = ("problem_sha256", "candidate_sha256")
    changed = (
        latest.lazy()
        .filter(may_repeat(CELL_KEY))
        .group_by(CELL_KEY)
        .agg(
            pl.any_horizontal(pl.col(name).min() != pl.col(name).max() for name in content).alias("_changed"),
            *(pl.col(name).get(pl.col("started_at").arg_max()).alias(f"_{name}") for name in content),
        )
        .filter(pl.col("_changed"))
        .collect()
    )
    if changed.is_empty():
        return Standings(latest, ())
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(f"_{name}")) for name in content)
    kept = (
        latest.join(changed, on=CELL_KEY, how="left", nulls_equal=True, maintain_order="left")
        .filter(pl.col("_changed").is_null() | same)
        .select(latest.columns)
    )
    note = (
        f"{changed.height} cells were run with several versions of the problem or candidate; the newest counts, "
        f"and {latest.height - kept.height} older outcomes are left out."
    )
    return Standings(kept, (note,))


_MEASURED: Final = ("candidate", "baseline")
"""What is timed in a session."""


def _times(cells: pl.LazyFrame) -> pl.LazyFrame:
    """Make one row per record and workload: moments of the logarithms of positive, finite session medians."""
    logs = {name: log_of(pl.col(f"{name}_median_ns")) for name in _MEASURED}
    gain = log_of(pl.col("speedup"))
    return (
        sessions(cells)
        .filter(logs["candidate"].is_not_null())
        # In order, so that sums over the same tables are equal to the last digit, and with them the hash of best times.
        .group_by("record", "workload", maintain_order=True)
        .agg(
            *(log.count().alias(f"_{name}_n") for name, log in logs.items()),
            *(log.sum().alias(f"_{name}_sum") for name, log in logs.items()),
            *((log - _USUAL).pow(2).sum().alias(f"_{name}_power") for name, log in logs.items()),
            gain.sum().alias("_gain"),
            gain.count().alias("_gains"),
        )
        .with_columns(
            (pl.col(f"_{name}_power") - _of_mean(name)).clip(lower_bound=0.0).alias(f"_{name}_within")
            for name in _MEASURED
        )
    )


_MOMENTS: Final = ("n", "sum", "power", "within")
"""Of a run: its sessions; the sum of their logarithms; of their squares, less :data:`_USUAL`; of those around the mean.

Sums are fast: a variance per group takes ten times as long."""
_USUAL: Final = 10.0
"""Logarithm of a usual time in nanoseconds, taken away before squares are added, for the last digits."""


def _of_mean(name: str) -> pl.Expr:
    """Compute the part of the squares that the mean has."""
    count = pl.col(f"_{name}_n").cast(pl.Float64)
    return pl.when(count > 0).then((pl.col(f"_{name}_sum") - count * _USUAL) ** 2 / count).otherwise(0.0)


def _unless_failed(sums: Sequence[str]) -> list[pl.Expr]:
    """Keep the sums of cells that failed nowhere."""
    kept = [pl.when(~pl.col("_failed")).then(name).otherwise(0).alias(name) for name in sums]
    return [*kept, *(pl.when(~pl.col("_failed")).then(name).alias(name) for name in _SHARES)]


def _decided() -> list[pl.Expr]:
    words = {weight: standing.value for standing, weight in _WEIGHTS.items()}
    return [
        pl.col("_weight").replace_strict(words, return_dtype=STANDINGS["standing"]).alias("standing"),
        pl.col("_candidate_n").cast(pl.UInt32).alias("sessions"),
        _mean("_candidate_sum", "_candidate_n").alias("candidate_ns"),
        pl.col("_baseline_n").cast(pl.UInt32).alias("baseline_sessions"),
        _mean("_baseline_sum", "_baseline_n").alias("baseline_ns"),
        _mean("_gain", "_gains").alias("speedup"),
    ]


def _with_errors(table: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Add the standard errors of both times."""
    noise = run_noise(pl.concat([_runs(known, "candidate", CELL_KEY), _runs(known, "baseline", _BASELINE_KEY)]))
    names = {"candidate": "log", "baseline": "baseline"}
    for measured, name in names.items():
        time_ns = pl.col(f"{measured}_ns")
        moments = table.select(
            "gpu",
            pl.sum_horizontal(time_ns >= ns for ns in SIZES_NS).alias("size"),
            pl.col(f"_{measured}_n").alias("sessions"),
            pl.col(f"_{measured}_runs").alias("runs"),
            (pl.col(f"_{measured}_power") - _of_mean(measured)).clip(lower_bound=0.0).alias("squares"),
            pl.col(f"_{measured}_within").alias("squares_within"),
        )
        error, degrees = standard_errors(moments, noise)
        table = table.with_columns(error.alias(f"{name}_error"), degrees.alias(f"{name}_degrees"))
    return table


_BASELINE_KEY: Final = ("gpu", "toolchain", "dtype", "problem", "problem_sha256", "workload")
"""Columns that identify one baseline, which every candidate's cell times again."""


def _runs(known: pl.DataFrame, measured: str, key: Sequence[str]) -> pl.DataFrame:
    """Select the runs of what was measured in several, as :func:`run_noise` reads them."""
    count, total, within = (pl.col(f"_{measured}_{part}") for part in ("n", "sum", "within"))
    passed = known.lazy().filter((pl.col("_weight") == _WEIGHTS[Standing.PASSED]) & (pl.col(f"_{measured}_n") > 0))
    row = pl.struct(pl.lit(measured).alias("of"), *key).hash(0).alias("row")
    runs = passed.select(row, count.alias("n"), (total / count).alias("mean"), within.alias("squares"))
    return runs.filter(pl.col("row").is_duplicated()).collect()


def _mean(total: str, count: str) -> pl.Expr:
    return pl.when(pl.col(count) > 0).then((pl.col(total) / pl.col(count)).exp())


def _notes(table: pl.DataFrame) -> list[str]:
    contradicted = int(table["_contradicted"].sum())
    untimed = table.filter((pl.col("standing") == Standing.PASSED.value) & pl.col("candidate_ns").is_null()).height
    notes = []
    if contradicted:
        notes.append(f"{contradicted} cells pass on one unit or host and fail on another; they count as failed.")
    if untimed:
        notes.append(f"{untimed} cells passed without a positive, finite time; they have no efficiency.")
    return notes


def _unusable(cells: pl.LazyFrame) -> list[str]:
    """Write a note on invalid times."""
    time = pl.col("candidate_median_ns")
    passed = (pl.col("status") == Status.PASSED.value) & (pl.col("session_status") == Status.PASSED.value)
    count = cells.filter(passed & ((time <= 0) | ~time.is_finite())).select(pl.len()).collect().item()
    return [f"{count} sessions have a time that is zero, negative or not finite; they are left out."] if count else []


def gpus_in(table: pl.DataFrame) -> tuple[list[str], list[str]]:
    """List the GPUs that cells name, in order; also returns notes on cells that name none, as some imported ones.

    Raises:
        NothingSelectedError: No cell names a GPU.
    """
    named = table["gpu"].drop_nulls().unique().sort().to_list()
    if not named:
        raise NothingSelectedError(
            "no cell names its GPU", next_step="Import results that name their device, or run a matrix."
        )
    nameless = table["gpu"].null_count()
    return named, [f"{nameless} cells do not name their GPU, and are left out."] if nameless else []


def chosen_gpus(table: pl.DataFrame, platforms: Sequence[str]) -> tuple[list[str], list[str]]:
    """List those of ``platforms`` that cells name, or all that they name if it is empty; also returns notes.

    Raises:
        NothingSelectedError: No cell names one of them.
    """
    seen, nameless = gpus_in(table)
    gpus = [gpu for gpu in seen if gpu in (platforms or seen)]
    if not gpus:
        raise NothingSelectedError(
            f"no cell ran on any of {', '.join(platforms)}",
            next_step=f"Declare platforms among {', '.join(seen)}.",
        )
    return gpus, nameless


def one_toolchain_per_gpu(table: pl.DataFrame) -> bool:
    """Return True if each GPU has only one toolchain, so that toolchains need not be kept apart."""
    return table.select("gpu", "toolchain").unique().height == table["gpu"].n_unique()


def slice_columns(names: Sequence[str], question: str) -> list[str]:
    """Look up the columns of ``names`` in standings.

    Raises:
        UsageError: A name is unknown, or its column may differ between the units of a cell.
    """
    columns = columns_of(names)
    for name, column in zip(names, columns, strict=True):
        if column not in STANDINGS:
            raise UsageError(
                f"{question} cannot be sliced by {name!r}, which may differ between the hosts of one cell",
                next_step="Filter the tables by it instead.",
            )
    return columns


@dataclass(frozen=True, slots=True)
class FoldedTable:
    """A table folded along one of its columns: one row per key, one column per value of the axis."""

    keys: pl.DataFrame
    """One row per key, sorted."""
    names: tuple[str, ...]
    """The values of the axis."""
    table: pl.DataFrame
    """The rows that were folded."""
    row: Places
    """Row of ``keys`` for each row of ``table``."""
    column: Places
    """Place in ``names`` for each row of ``table``."""

    def of(self, values: pl.Series) -> Floats:
        """Fold ``values``, aligned with ``table``, to keys × names; NaN where there is none."""
        folded = np.full((self.keys.height, len(self.names)), np.nan, order="F")  # read by column
        folded[self.row, self.column] = values.cast(pl.Float64).fill_null(np.nan).to_numpy()
        return folded

    def stands(self, standing: Standing) -> Truths:
        """Flag the keys × names with this standing."""
        found: Truths = self.of(self.table["standing"] == standing.value) == 1
        return found


def fold(table: pl.DataFrame, axis: str, names: Sequence[str], keys: Sequence[str]) -> FoldedTable:
    """Fold ``table`` along ``axis``, leaving out rows whose value is not in ``names``.

    The columns ``keys`` and ``axis`` together must identify each row.
    """
    kept = table.filter(pl.col(axis).cast(pl.String).is_in(list(names)))
    found = kept.select(keys).unique().sort(keys)
    rows = kept.lazy().join(
        found.lazy().with_row_index("_row"), on=list(keys), how="left", nulls_equal=True, maintain_order="left"
    )
    places = {name: place for place, name in enumerate(names)}
    where = rows.select(
        pl.col("_row").cast(pl.Int64),
        pl.col(axis).cast(pl.String).replace_strict(places, return_dtype=pl.Int64).alias("_column"),
    ).collect()
    return FoldedTable(found, tuple(names), kept, where["_row"].to_numpy(), where["_column"].to_numpy())
