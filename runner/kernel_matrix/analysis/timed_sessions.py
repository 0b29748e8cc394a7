"""Every timed session by cell: the logarithms for all analyses of noise, and the nesting of units and nights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from kernel_matrix.analysis.components import NestedLevels
from kernel_matrix.analysis.outcomes import CELL_KEY, SESSIONS, candidate_kind, may_repeat, sessions
from kernel_matrix.errors import NothingSelectedError
from kernel_matrix.model.enums import Fault

OF: Final = ("candidate", "baseline", "speedup")
"""Measures: the candidate's time, the baseline's, and the speed-up."""
RECURRING: Final = NestedLevels(
    top=("host",), middle=("unit",), low=("night",), middle_effect=("host", "unit"), low_effect=("night",)
)
ONCE: Final = NestedLevels(
    top=("night",), middle=("host",), low=("unit",), middle_effect=("host",), low_effect=("host", "unit")
)
SLICE: Final = "slice"
ALL: Final = "all"
"""Column and value if there is nothing to slice by."""
_CONTENT: Final = ("candidate_sha256", "problem_sha256")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSessions:
    """Every timed session, by cell."""

    values: pl.DataFrame
    """``cell``, ``record``, ``session``, ``workload``, ``host``, ``unit``, ``night``, logarithms ``log_<of>``, and the
    spreads ``spread_candidate`` and ``spread_baseline`` of the samples whose medians they are."""
    cells: pl.DataFrame
    """``cell``, the row's number, and the columns that identify it: :data:`CELL_KEY`, content and slices."""
    chain: NestedLevels
    notes: tuple[str, ...] = field(default=())

    def with_labels(self, rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
        """Add the slice of each row's ``cell``: the columns ``by``, or one slice for all."""
        if not by:
            return rows.with_columns(pl.lit(ALL).alias(SLICE))
        return rows.hstack(self.cells.select(by)[rows["cell"]])


def measured_in(cells: pl.LazyFrame, by: Sequence[str]) -> TimedSessions:
    """Read every session that passed and was timed, with its cell; ``by`` are further columns that separate cells.

    Raises:
        NothingSelectedError: There is no such session.
    """
    keys = [*CELL_KEY, *_CONTENT, *(name for name in by if name not in CELL_KEY)]
    timed = _timed(cells, by, keys)
    total, infra = cells.select(pl.len(), infra=(pl.col("fault") == Fault.INFRA.value).sum()).collect().row(0)
    if timed.is_empty():
        raise NothingSelectedError(
            f"none of the {total} rows of cells is a session that passed and was timed",
            next_step="Run `kernel-matrix run` until cells pass, then merge and ask again.",
        )
    known, values = _numbered(timed, keys)
    notes = (*_left_out(total - timed.height, total, infra), *_mixed(values, known.height))
    return TimedSessions(values=values, cells=known, chain=_chain(values), notes=notes)


def _numbered(timed: pl.DataFrame, keys: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the combinations of ``keys`` in order of appearance, and all rows with their number, as ``cell``."""
    rows = timed.with_row_index("_row")
    repeated = rows.filter(may_repeat(keys)).select("_row", _first=pl.col("_row").first().over(keys))
    first = rows.select("_row").join(repeated, on="_row", how="left", maintain_order="left")
    is_first = first.select(pl.col("_first").fill_null(pl.col("_row")) == pl.col("_row")).to_series()
    cell = (is_first.cast(pl.UInt32).cum_sum() - 1).gather(first["_first"].fill_null(first["_row"]))
    return timed.filter(is_first).select(keys).with_row_index("cell"), timed.with_columns(cell.alias("cell"))


def _timed(cells: pl.LazyFrame, by: Sequence[str], keys: Sequence[str]) -> pl.DataFrame:
    found = sessions(cells)
    missing = [name for name in by if name not in SESSIONS]
    if missing:
        known = cells.with_columns(candidate_kind=candidate_kind()) if "candidate_kind" in missing else cells
        found = found.join(known.select("record", *missing).unique("record"), on="record")
    rows = found.select(
        *dict.fromkeys([*keys, "gpu_name", "driver", "image_id", "record", "session", "workload", "night"]),
        host=pl.col("host_id"),
        unit=pl.col("gpu_uuid"),
        log_candidate=log_of(pl.col("candidate_median_ns")),
        log_baseline=log_of(pl.col("baseline_median_ns")),
        log_speedup=log_of(pl.col("speedup")),
        spread_candidate=pl.col("spread_within"),
        spread_baseline=pl.col("baseline_spread_within"),
    )
    return rows.filter(pl.col("log_candidate").is_not_null()).collect()


def _left_out(rows: int, total: int, infra: int) -> list[str]:
    if not rows:
        return []
    failures = f"{infra} are infrastructure failures"
    return [f"{rows} of {total} rows of cells are left out: they did not pass or have no usable time ({failures})."]


def _mixed(values: pl.DataFrame, cells: int) -> list[str]:
    """Write a note on cells that were measured with several drivers or images."""
    ran_with = values.select("cell", "driver", "image_id").unique().group_by("cell").agg(pl.len())
    several = int((ran_with["len"] > 1).sum())
    if not several:
        return []
    counts = "their effect counts as difference between nights, or between hosts"
    return [f"{several} of {cells} cells were measured with more than one driver or image; {counts}."]


def log_of(value: pl.Expr) -> pl.Expr:
    """Take the logarithm; null for values that are not positive and finite."""
    return pl.when((value > 0) & value.is_finite()).then(value.log())


def squares_around(value: pl.Expr) -> pl.Expr:
    """Sum the squares around the mean; 0 for a single value."""
    return ((value.count().cast(pl.Float64) - 1) * value.var()).fill_null(0.0)


def _chain(values: pl.DataFrame) -> NestedLevels:
    """Choose the nesting: nights within units if any unit measured a cell on several nights, else units in nights."""
    counted = values.select("cell", "host", "unit", "night").unique()
    recur = counted.height > counted.select("cell", "host", "unit").unique().height
    return RECURRING if recur else ONCE
