"""Collects what every format shows from the tables; each part is read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import AuditCheck
from kernel_matrix.analysis.comparison import Comparison
from kernel_matrix.analysis.outcomes import outcomes
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import NothingSelectedError
from kernel_matrix.report import cell_choice, failure_groups, heat_map, time_scatter
from kernel_matrix.report.overview import Overview, overview, portability
from kernel_matrix.report.question_pages import QuestionPage, asked, cut

MOST_PLACES: Final = 40_000
"""Places of the heat map that the page carries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """What one check of the audit found."""

    check: str
    severity: str
    about: str
    count: int
    rows: pl.DataFrame
    """With the columns of :data:`kernel_matrix.analysis.audit.FINDINGS`, the worst first; see ``notes``."""
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContents:
    """What every format shows."""

    title: str
    made_at: datetime
    folders: Sequence[str]
    overview: Overview
    portability: str
    grid: pl.DataFrame
    """See :func:`kernel_matrix.report.heat_map.heat`."""
    failures: pl.DataFrame
    """See :func:`kernel_matrix.report.failure_groups.failures`."""
    comparison: Comparison | None = None
    """With earlier results; null where none was asked for."""
    findings: Sequence[AuditFinding] | None = None
    """Of the audit, the worst first; null where none was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDetails:
    """What only a page shows."""

    cells: pl.DataFrame
    samples: pl.DataFrame
    looks: pl.DataFrame
    nights: pl.DataFrame
    spreads: pl.DataFrame
    asked: Sequence[QuestionPage] = field(default=())


_NEEDED: Final = (
    *cell_choice.FROM_OUTCOMES,
    *("run_id", "run_started_at", "attempt", "counted", "passed"),
)


def gather(
    tables: Tables,
    *,
    title: str,
    made_at: datetime,
    folders: Sequence[str],
    comparison: Comparison | None = None,
    findings: Sequence[AuditFinding] | None = None,
) -> tuple[ReportContents, pl.DataFrame]:
    """The contents, and the outcomes they are made of."""
    found = outcomes(tables.cells).select(_NEEDED).collect(engine="streaming")
    contents = ReportContents(
        title=title,
        made_at=made_at,
        folders=folders,
        overview=overview(found, tables),
        portability=portability(found),
        grid=heat_map.heat(found),
        failures=failure_groups.failures(found),
        comparison=comparison,
        findings=findings,
    )
    return contents, found


def audited(tables: Tables) -> list[AuditFinding]:
    """What the audit finds, the worst severity first; nothing where there is nothing to look at."""
    from kernel_matrix.analysis.audit import audit  # noqa: PLC0415  # loads every check

    try:
        return [_finding(check, rows) for check, rows in audit(tables) if rows.height]
    except NothingSelectedError:
        return []


def _finding(check: AuditCheck, rows: pl.DataFrame) -> AuditFinding:
    shown = cut(Answer(name=check.name, title=check.about, table=rows))
    return AuditFinding(
        check=check.name,
        severity=check.severity.value,
        about=check.about,
        count=int(rows["count"].sum()),
        rows=shown.table,
        notes=shown.notes,
    )


def detail(tables: Tables, found: pl.DataFrame, *, request: QuestionOptions | None = None) -> PageDetails:
    """What only a page shows.

    :param found: the outcomes that :func:`gather` returned.
    :param request: what to ask every question with.
    """
    cells = cell_choice.chosen(found, tables)
    keys = found.select("record", "run_id", "cell_id", "attempt").unique("record")
    return PageDetails(
        cells=cells,
        samples=cell_choice.samples(cells, tables),
        looks=cell_choice.looks(cells, keys, tables.telemetry),
        nights=time_scatter.nights(tables.cells),
        spreads=time_scatter.spreads(found),
        asked=tuple(asked(tables, request or QuestionOptions())),
    )
