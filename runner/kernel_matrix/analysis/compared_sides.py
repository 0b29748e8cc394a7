"""The two sides of a comparison: attempts that count, their outcomes, and the sessions of their runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import polars as pl

from kernel_matrix.analysis.comparison import ComparedQuantity
from kernel_matrix.analysis.outcomes import CELL_KEY
from kernel_matrix.model.enums import Fault, Status
from kernel_matrix.results.attempts import is_shown, latest_attempts

CONTENT: Final = {"candidate": "candidate_sha256", "problem": "problem_sha256"}
PLACE: Final = {
    "driver": "driver",
    "image": "image_id",
    "unit": "gpu_uuid",
    "host": "hostname",
    "torch": "torch",
    "triton": "triton",
    "CUDA": "cuda",
    "clocks": "clock_state",
}
_ATTEMPT: Final = ("status", "fault", "message", "cell_id", "category", *CONTENT.values(), *PLACE.values())
_FEWEST_STEPS: Final = 20
"""Different medians from which the smallest step between two estimates the clock's tick."""
ABSENT, PASSED, FAILED, UNKNOWN = "absent", "passed", "failed", "unknown"
"""States of a cell on a side."""
SESSION: Final = ("run_id", "gpu_uuid", "session")
"""Columns that identify a session of a cell."""


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One side of the comparison, by cell and by session."""

    attempts: pl.DataFrame
    """One row per cell: its outcome."""
    offered: pl.DataFrame
    """The workloads of each cell that has rows of any."""
    sessions: pl.DataFrame
    """One row per session that passed and has a time: the key, workload, ``value``, and the columns to pair by."""
    cut: int
    """Sessions whose time is not positive and finite."""
    units: int
    """Cells that ran on more than one unit."""
    tick_ns: float
    """The smallest step between two medians: the tick of the device's clock, or half of it; 0 if unknown."""


Sides: TypeAlias = tuple[ComparedSide, ComparedSide]
"""Base and new."""


def pick_attempts(
    base: pl.LazyFrame, new: pl.LazyFrame, key: Sequence[str], *, units_matter: bool
) -> tuple[pl.DataFrame, pl.DataFrame, int]:
    """Read the rows of the attempts that count on each side, and count those left out for their unit."""
    words = [pl.col(name).cast(pl.String) for name in key]
    latest = [
        latest_attempts(cells.with_columns(words), (*key, "host_id", "gpu_uuid")).collect() for cells in (base, new)
    ]
    left_out = 0
    if units_matter:
        unit = [*key, "gpu_uuid"]
        shared = latest[0].join(latest[1], on=unit, how="semi", nulls_equal=True).select(unit).unique()
        cells = shared.select(key).unique()
        for number, frame in enumerate(latest):
            alone = frame.join(cells, on=key, how="anti", nulls_equal=True)
            kept = pl.concat([alone, frame.join(shared, on=unit, how="semi", nulls_equal=True)])
            left_out += frame.height - kept.height
            latest[number] = kept
    picked = [
        _with_earlier_runs(_read(cells), records, key) for cells, records in zip((base, new), latest, strict=True)
    ]
    return picked[0], picked[1], left_out


def _with_earlier_runs(cells: pl.LazyFrame, records: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return the rows of these ``records``, and of earlier ones of the same content and unit; marked in ``latest``."""
    chosen = cells.with_columns(latest=pl.col("record").is_in(records["record"].implode())).collect()
    same = [*key, *CONTENT.values(), "gpu_uuid"]
    return chosen.join(chosen.filter("latest").select(same).unique(), on=same, how="semi", nulls_equal=True)


def _read(cells: pl.LazyFrame) -> pl.LazyFrame:
    """Select the columns that a comparison needs, enums as text."""
    times = ("candidate_median_ns", "speedup", "sm_clock_mhz", "anchor_compute_ns")
    names = ("record", *CELL_KEY, *_ATTEMPT, *SESSION, "started_at", "ended_at", "session_status", *times)
    words = ("dtype", "status", "fault", "session_status")
    return cells.filter(is_shown()).select(
        pl.col(name).cast(pl.String) if name in words else pl.col(name) for name in dict.fromkeys(names)
    )


def side_of(rows: pl.DataFrame, key: Sequence[str], of: ComparedQuantity) -> ComparedSide:
    """Summarise the picked rows of one side."""
    passed = pl.col("status") == Status.PASSED.value
    state = (
        pl.when(passed)
        .then(pl.lit(PASSED))
        .when(pl.col("fault") == Fault.CANDIDATE.value)
        .then(pl.lit(FAILED))
        .otherwise(pl.lit(UNKNOWN))
    )
    value = {
        ComparedQuantity.TIME: pl.col("candidate_median_ns"),
        ComparedQuantity.SPEEDUP: pl.col("speedup"),
        ComparedQuantity.CYCLES: pl.col("candidate_median_ns") * pl.col("sm_clock_mhz") / 1000,
    }[of]
    attempts = rows.filter("latest").unique("record", keep="any").with_columns(state=state)
    # A cell that fails on one unit fails; a unit with an unknown outcome does not hide that of the others.
    worst = pl.col("state").replace_strict({FAILED: 0, PASSED: 1, UNKNOWN: 2}, return_dtype=pl.Int8)
    by_cell = (
        attempts.sort(worst, "record")
        .group_by(key, maintain_order=True)
        .agg(pl.col("state", *_ATTEMPT).first(), pl.len().alias("units"))
    )
    timed = rows.filter(passed & (pl.col("session_status") == Status.PASSED.value)).select(
        *key, "workload", "record", *SESSION, "started_at", "ended_at", value.alias("value"),
        ns=pl.col("candidate_median_ns"),
        clock=pl.when(pl.col("sm_clock_mhz") > 0).then("sm_clock_mhz"),
        anchor=pl.when(pl.col("anchor_compute_ns") > 0).then("anchor_compute_ns"),
    )  # fmt: skip
    good = pl.col("value").is_finite() & (pl.col("value") > 0)
    return ComparedSide(
        attempts=by_cell,
        offered=rows.filter(pl.col("latest") & pl.col("workload").is_not_null()).select(*key, "workload").unique(),
        sessions=timed.filter(good),
        cut=timed.filter(pl.col("value").is_not_null() & ~good).height,
        units=by_cell.filter(pl.col("units") > 1).height,
        tick_ns=_tick(timed.filter(good)["ns"]),
    )


def _tick(medians: pl.Series) -> float:
    different = medians.drop_nulls().unique().sort()
    least = different.diff().min() if different.len() >= _FEWEST_STEPS else None
    return least if isinstance(least, float) else 0.0


def grid_of(sides: Sides, key: list[str]) -> pl.DataFrame:
    """Make one numbered row per cell and workload of either side, with the outcome on each side.

    A cell that failed before any workload counts for every workload that the other side has.
    """
    cells = pl.concat([side.attempts.select(key) for side in sides]).unique(maintain_order=True)
    workloads = pl.concat([side.offered for side in sides]).unique()
    grid = cells.join(workloads, on=key, how="left", nulls_equal=True)
    for prefix, side in zip(("base", "new"), sides, strict=True):
        attempts = side.attempts.rename({name: f"{prefix}_{name}" for name in ("state", *_ATTEMPT)}).drop("units")
        offered = side.offered.with_columns(pl.lit(value=True).alias("_offered"))
        state = pl.col(f"{prefix}_state")
        not_offered = (state == PASSED) & pl.col("workload").is_not_null() & pl.col("_offered").is_null()
        grid = (
            grid.join(attempts, on=key, how="left", nulls_equal=True)
            .join(offered, on=[*key, "workload"], how="left", nulls_equal=True)
            .with_columns(
                pl.when(not_offered).then(pl.lit(ABSENT)).otherwise(state).fill_null(ABSENT).alias(f"{prefix}_state")
            )
            .drop("_offered")
        )
    return grid.with_row_index("row")


def with_moments(grid: pl.DataFrame, sides: Sides, key: list[str]) -> pl.DataFrame:
    """Add the moments of both sides, ``base_mean`` and so on."""
    for prefix, side in zip(("base", "new"), sides, strict=True):
        log = pl.col("value").log()
        moments = (
            side.sessions.group_by(*key, "workload")
            .agg(
                pl.len().cast(pl.Int64).alias(f"{prefix}_sessions"),
                pl.col("record").n_unique().cast(pl.Int64).alias(f"{prefix}_runs"),
                log.mean().alias(f"{prefix}_mean"),
                pl.col("ns").mean().alias(f"{prefix}_ns"),
                pl.col("clock").mean().alias(f"{prefix}_sm_clock_mhz"),
                pl.col("anchor").log().mean().alias(f"{prefix}_anchor"),
            )
        )  # fmt: skip
        grid = grid.join(moments, on=[*key, "workload"], how="left", nulls_equal=True)
    return grid.sort("row")
