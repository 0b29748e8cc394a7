"""Collects what every format shows from the tables; each part is read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import polars as pl

from runner.analysis.audit.check import Check
from runner.analysis.comparison import Comparison
from runner.analysis.outcomes import outcomes
from runner.analysis.questions import Answer, Request
from runner.analysis.tables import Tables
from runner.errors import NothingSelectedError
from runner.report import chosen, failures, heat, motion
from runner.report.asked import Asked, asked, cut
from runner.report.overview import Overview, overview, portability

MOST_PLACES: Final = 40_000
"""Places of the heat map that the page carries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check of the audit found."""

    check: str
    severity: str
    about: str
    count: int
    rows: pl.DataFrame
    """With the columns of :data:`runner.analysis.audit.FINDINGS`, the worst first; see ``notes``."""
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What every format shows."""

    title: str
    made_at: datetime
    folders: Sequence[str]
    overview: Overview
    portability: str
    grid: pl.DataFrame
    """See :func:`runner.report.heat.heat`."""
    failures: pl.DataFrame
    """See :func:`runner.report.failures.failures`."""
    comparison: Comparison | None = None
    """With earlier results; null where none was asked for."""
    findings: Sequence[Finding] | None = None
    """Of the audit, the worst first; null where none was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What only a page shows."""

    cells: pl.DataFrame
    samples: pl.DataFrame
    looks: pl.DataFrame
    nights: pl.DataFrame
    spreads: pl.DataFrame
    asked: Sequence[Asked] = field(default=())


_NEEDED: Final = (
    *chosen.FROM_OUTCOMES,
    *("run_id", "run_started_at", "attempt", "counted", "passed"),
)


def gather(
    tables: Tables,
    *,
    title: str,
    made_at: datetime,
    folders: Sequence[str],
    comparison: Comparison | None = None,
    findings: Sequence[Finding] | None = None,
) -> tuple[Contents, pl.DataFrame]:
    """The contents, and the outcomes they are made of."""
    found = outcomes(tables.cells).select(_NEEDED).collect(engine="streaming")
    contents = Contents(
        title=title,
        made_at=made_at,
        folders=folders,
        overview=overview(found, tables),
        portability=portability(found),
        grid=heat.heat(found),
        failures=failures.failures(found),
        comparison=comparison,
        findings=findings,
    )
    return contents, found


def audited(tables: Tables) -> list[Finding]:
    """What the audit finds, the worst severity first; nothing where there is nothing to look at."""
    from runner.analysis.audit import audit  # noqa: PLC0415  # loads every check

    try:
        return [_finding(check, rows) for check, rows in audit(tables) if rows.height]
    except NothingSelectedError:
        return []


def _finding(check: Check, rows: pl.DataFrame) -> Finding:
    shown = cut(Answer(name=check.name, title=check.about, table=rows))
    return Finding(
        check=check.name,
        severity=check.severity.value,
        about=check.about,
        count=int(rows["count"].sum()),
        rows=shown.table,
        notes=shown.notes,
    )


def detail(tables: Tables, found: pl.DataFrame, *, request: Request | None = None) -> Details:
    """What only a page shows.

    :param found: the outcomes that :func:`gather` returned.
    :param request: what to ask every question with.
    """
    cells = chosen.chosen(found, tables)
    keys = found.select("record", "run_id", "cell_id", "attempt").unique("record")
    return Details(
        cells=cells,
        samples=chosen.samples(cells, tables),
        looks=chosen.looks(cells, keys, tables.telemetry),
        nights=motion.nights(tables.cells),
        spreads=motion.spreads(found),
        asked=tuple(asked(tables, request or Request())),
    )
