"""What a check is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import polars as pl

from kernel_matrix.analysis.outcomes import CELL_KEY
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.model.enums import Status


class Severity(str, Enum):
    """How much of what the rows say is lost."""

    ERROR = "error"
    """The rows named cannot be true, or cannot mean what they seem to."""
    WARNING = "warning"
    """They may be true; whoever concludes something from them has to know this."""
    NOTE = "note"
    """Something could not be looked at, or is good to know."""


SEVERITIES: Final = tuple(one.value for one in Severity)
"""The worst first."""

WHERE: Final = CELL_KEY
"""The columns that say which cells a finding is about; null: it is about all of that kind."""

ROW: Final = ("record", "session", "workload")
"""The columns that make a row of ``cells``, and by which samples belong to it."""

FINDINGS: Final[dict[str, pl.DataType]] = {
    "check": pl.String(),
    "severity": pl.Enum(SEVERITIES),
    **{name: pl.String() for name in WHERE},
    "evidence": pl.String(),
    "count": pl.Int64(),
}
"""``evidence``: one line with the numbers. ``count``: how many rows, calls or cells it is about; the evidence says."""

_WORST: Final = "_worst"
_MOST_LISTED: Final = 4

Look = Callable[[Tables], pl.LazyFrame]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCheck:
    """One question to the tables that honest ones answer with nothing."""

    name: str
    """Short and stable: what ``--only`` and ``--json`` call it."""
    severity: Severity
    about: str
    """One sentence: what a finding of it means."""
    look: Look
    """From tables to a frame that :func:`told` made."""

    def findings(self, tables: Tables) -> pl.DataFrame:
        """What it finds, the worst first, with the columns of :data:`FINDINGS`."""
        found = self.look(tables).collect(engine="streaming")
        # Groups come in no order: all columns decide, so that the same tables give the same page.
        ordered = found.sort(_WORST, *WHERE, "evidence", descending=[True, *(False for _ in (*WHERE, "evidence"))])
        return ordered.select(
            pl.lit(self.name).alias("check"),
            pl.lit(self.severity.value, FINDINGS["severity"]).alias("severity"),
            *(pl.col(name).cast(FINDINGS[name]) for name in (*WHERE, "evidence", "count")),
        )


def told(
    frame: pl.LazyFrame, evidence: pl.Expr, *, count: pl.Expr | None = None, worst: pl.Expr | None = None
) -> pl.LazyFrame:
    """Findings of the rows of ``frame``.

    :param frame: one row per finding; those columns of :data:`WHERE` that it has say where.
    :param count: default: 1 each.
    :param worst: the finding with the largest comes first; default: the largest count.
    """
    there = frame.collect_schema().names()
    number = pl.lit(1) if count is None else count
    return frame.select(
        *((pl.col(name) if name in there else pl.lit(None)).cast(pl.String).alias(name) for name in WHERE),
        evidence.alias("evidence"),
        number.cast(pl.Int64).alias("count"),
        (number if worst is None else worst).cast(pl.Float64).alias(_WORST),
    )


def figure(value: pl.Expr, *, digits: int = 4) -> pl.Expr:
    """``value`` as text with so many significant digits."""
    rounded = value.cast(pl.Float64).round_sig_figs(digits)
    whole = (rounded == rounded.round()) & (rounded.abs() < 1e15)
    text = pl.when(whole).then(rounded.cast(pl.Int64, strict=False).cast(pl.String)).otherwise(rounded.cast(pl.String))
    return text.fill_null("unknown")


def micro(nanoseconds: pl.Expr) -> pl.Expr:
    """Nanoseconds as text in µs."""
    return sentence("{} µs", figure(nanoseconds / 1000))


def percent(share: pl.Expr) -> pl.Expr:
    """A share as text in per cent."""
    return sentence("{} %", figure(share * 100, digits=3))


def listed(name: str) -> pl.Expr:
    """In a group: the distinct values of a column in order, the first few of them, as text."""
    values = pl.col(name).cast(pl.String).drop_nulls().unique().sort()
    return values.head(_MOST_LISTED).implode().list.join(", ")


def few_bits(value: pl.Expr) -> pl.Expr:
    """In a group: an integer with a bit per distinct value, of which some may share one.

    Few bits may be few values, and many bits are many: a set per group would take gigabytes to say that.
    """
    return pl.lit(2, pl.Int64).pow(value.hash() % 62).cast(pl.Int64).bitwise_or()


def passed(cells: pl.LazyFrame) -> pl.LazyFrame:
    """Rows of attempts that passed and have a candidate's time."""
    return cells.filter((pl.col("status") == Status.PASSED.value) & pl.col("candidate_median_ns").is_not_null())


def named(frame: pl.LazyFrame, tables: Tables) -> pl.LazyFrame:
    """``frame`` with the columns :data:`WHERE` of a cell, by its columns :data:`ROW`; null where there is no cell."""
    names = tables.cells.select(*dict.fromkeys((*ROW, *WHERE))).unique(ROW)
    return frame.join(names, on=ROW, how="left")


def together(frames: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
    """Findings of several looks as those of one."""
    return pl.concat(frames)
