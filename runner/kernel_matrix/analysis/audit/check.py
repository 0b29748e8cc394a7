"""Checks, their findings, and helpers to make them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

import polars as pl

from kernel_matrix.analysis.outcomes import CELL_KEY
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.model.enums import Status


class Severity(str, Enum):
    """Severity of a finding."""

    ERROR = "error"
    """The rows cannot be true, or do not mean what they seem to."""
    WARNING = "warning"
    """The rows may be true, but conclusions from them need care."""
    NOTE = "note"
    """Something could not be checked, or is useful to know."""


SEVERITIES: Final = tuple(one.value for one in Severity)
"""The worst first."""

WHERE: Final = CELL_KEY
"""The columns that name the cells of a finding; null: it is about all of them."""

PLACE: Final = (*WHERE, "gpu_uuid")
"""The columns that name the rows of a finding: its cells, and the board that it is about, if it is about one."""

ROW: Final = ("record", "session", "workload")
"""The columns that identify a row of ``cells``; samples are joined by them."""

FINDINGS: Final[dict[str, pl.DataType]] = {
    "check": pl.String(),
    "severity": pl.Enum(SEVERITIES),
    **{name: pl.String() for name in PLACE},
    "evidence": pl.String(),
    "count": pl.Int64(),
}
"""``evidence``: one line with the numbers. ``count``: number of rows, calls or cells, see the evidence."""

_WORST: Final = "_worst"
_MOST_LISTED: Final = 4

Look = Callable[[Tables], pl.LazyFrame]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCheck:
    """A check that gives no findings for correct tables."""

    name: str
    """Short and stable name, for ``--only`` and ``--json``."""
    severity: Severity
    about: str
    """Meaning of a finding, in one sentence."""
    look: Look
    """From tables to a frame of :func:`make_findings`."""

    def findings(self, tables: Tables) -> pl.DataFrame:
        """Run the check; returns findings with the columns :data:`FINDINGS`, the worst first."""
        found = self.look(tables).collect(engine="streaming")
        # Groups are unordered: sort by all columns, so that the same tables give the same page.
        ordered = found.sort(_WORST, *PLACE, "evidence", descending=[True, *(False for _ in (*PLACE, "evidence"))])
        return ordered.select(
            pl.lit(self.name).alias("check"),
            pl.lit(self.severity.value, FINDINGS["severity"]).alias("severity"),
            *(pl.col(name).cast(FINDINGS[name]) for name in (*PLACE, "evidence", "count")),
        )


def make_findings(
    frame: pl.LazyFrame, evidence: pl.Expr, *, count: pl.Expr | None = None, worst: pl.Expr | None = None
) -> pl.LazyFrame:
    """Make findings from the rows of ``frame``.

    Args:
        frame: One row per finding; its columns of :data:`PLACE` name the rows.
        evidence: The evidence, as text.
        count: Number of rows, calls or cells; 1 each by default.
        worst: Sort key, largest first; ``count`` by default.
    """
    there = frame.collect_schema().names()
    number = pl.lit(1) if count is None else count
    return frame.select(
        *((pl.col(name) if name in there else pl.lit(None)).cast(pl.String).alias(name) for name in PLACE),
        evidence.alias("evidence"),
        number.cast(pl.Int64).alias("count"),
        (number if worst is None else worst).cast(pl.Float64).alias(_WORST),
    )


def figure(value: pl.Expr, *, digits: int = 4) -> pl.Expr:
    """Format ``value`` with ``digits`` significant digits."""
    rounded = value.cast(pl.Float64).round_sig_figs(digits)
    whole = (rounded == rounded.round()) & (rounded.abs() < 1e15)
    text = pl.when(whole).then(rounded.cast(pl.Int64, strict=False).cast(pl.String)).otherwise(rounded.cast(pl.String))
    return text.fill_null("unknown")


def micro(nanoseconds: pl.Expr) -> pl.Expr:
    """Format nanoseconds in µs."""
    return sentence("{} µs", figure(nanoseconds / 1000))


def percent(share: pl.Expr) -> pl.Expr:
    """Format a share in percent."""
    return sentence("{} %", figure(share * 100, digits=3))


def listed(name: str) -> pl.Expr:
    """List the first few distinct values of a column in a group, in order."""
    values = pl.col(name).cast(pl.String).drop_nulls().unique().sort()
    return values.head(_MOST_LISTED).implode().list.join(", ")


def few_bits(value: pl.Expr) -> pl.Expr:
    """Make an integer for a group with one bit per distinct value; several values may share a bit.

    Many bits prove many values, and few bits suggest few, without a set per group, which would take gigabytes.
    """
    return pl.lit(2, pl.Int64).pow(value.hash() % 62).cast(pl.Int64).bitwise_or()


def passed(cells: pl.LazyFrame) -> pl.LazyFrame:
    """Keep rows of attempts that passed and have a candidate's time."""
    return cells.filter((pl.col("status") == Status.PASSED.value) & pl.col("candidate_median_ns").is_not_null())


def claimed(side: str) -> pl.Expr:
    """Return the median of a side's claimed device times; of imported results, which say no more, its time."""
    return pl.coalesce(f"{side}_claimed_ns", f"{side}_median_ns")


def with_cells(frame: pl.LazyFrame, tables: Tables) -> pl.LazyFrame:
    """Add the columns :data:`WHERE` of each row's cell, joined by :data:`ROW`; null where there is no cell."""
    names = tables.cells.select(*dict.fromkeys((*ROW, *WHERE)))
    # A row may occur twice in cells. Findings are few, so that it is faster to remove such copies from them.
    return frame.join(names, on=ROW, how="left").unique(frame.collect_schema().names())
