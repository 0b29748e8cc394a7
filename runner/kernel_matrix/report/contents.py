"""Collection of the contents of a report from the tables; each part is read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import AuditCheck
from kernel_matrix.analysis.comparison import Comparison
from kernel_matrix.analysis.outcomes import ordinary, outcomes
from kernel_matrix.analysis.questions import Answer
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import NothingSelectedError
from kernel_matrix.report import cell_choice, failure_groups, heat_map, time_scatter
from kernel_matrix.report.leaderboard import Leaderboard, make_leaderboard
from kernel_matrix.report.overview import Overview, make_overview, summarise_portability
from kernel_matrix.report.question_pages import QuestionPage, answer_questions, cut_rows
from kernel_matrix.report.rounds_and_money import RoundsAndMoney, find_rounds_and_money
from kernel_matrix.report.sampled_traces import read_sampled_traces
from kernel_matrix.report.source_texts import SourceTexts, find_source_texts

MOST_PLACES: Final = 40_000
"""Places of the heat map on the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """The findings of one check of the audit."""

    check: str
    severity: str
    about: str
    count: int
    rows: pl.DataFrame
    """With the columns of :data:`kernel_matrix.analysis.audit.FINDINGS`, the worst first; see ``notes``."""
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContents:
    """Contents that every format shows."""

    title: str
    made_at: datetime
    folders: Sequence[str]
    overview: Overview
    portability: str
    grid: pl.DataFrame
    """See :func:`kernel_matrix.report.heat_map.build_heat_map`."""
    failures: pl.DataFrame
    """See :func:`kernel_matrix.report.failure_groups.group_failures`."""
    comparison: Comparison | None = None
    """Comparison with earlier results; None if none was asked for."""
    findings: Sequence[AuditFinding] | None = None
    """Findings of the audit, the worst first; None if no audit was made."""
    matrices: Sequence[Path] = ()
    """Matrix files through which the sources of candidates are found."""
    record_folders: Sequence[Path] = ()
    """Result folders, in which traces are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDetails:
    """Contents that only the HTML page shows."""

    cells: pl.DataFrame
    samples: pl.DataFrame
    telemetry: pl.DataFrame
    nights: pl.DataFrame
    spreads: pl.DataFrame
    leaderboard: Leaderboard
    sources: SourceTexts
    questions: Sequence[QuestionPage] = field(default=())
    generated: RoundsAndMoney | None = None
    """None if no candidate has a round or a cost."""


_NEEDED: Final = (*cell_choice.FROM_OUTCOMES, "run_id", "run_started_at", "attempt", "counted", "passed")


def gather(
    tables: Tables,
    *,
    title: str,
    made_at: datetime,
    folders: Sequence[str],
    comparison: Comparison | None = None,
    findings: Sequence[AuditFinding] | None = None,
    matrices: Sequence[Path] = (),
    record_folders: Sequence[Path] = (),
) -> tuple[ReportContents, pl.DataFrame]:
    """Collect the contents; also returns the outcomes that they are made of."""
    found = outcomes(tables.cells).select(_NEEDED).collect(engine="streaming")
    ours = ordinary(found)
    contents = ReportContents(
        title=title,
        made_at=made_at,
        folders=folders,
        overview=make_overview(found, tables),
        portability=summarise_portability(ours),
        grid=heat_map.build_heat_map(ours),
        failures=failure_groups.group_failures(found),
        comparison=comparison,
        findings=findings,
        matrices=matrices,
        record_folders=record_folders,
    )
    return contents, found


def audited(tables: Tables) -> list[AuditFinding]:
    """Run the audit and return its findings, the worst severity first; empty if the tables have no rows."""
    from kernel_matrix.analysis.audit import audit  # noqa: PLC0415  # loads every check

    try:
        return [_finding(check, rows) for check, rows in audit(tables) if rows.height]
    except NothingSelectedError:
        return []


def _finding(check: AuditCheck, rows: pl.DataFrame) -> AuditFinding:
    shown = cut_rows(Answer(name=check.name, title=check.about, table=rows))
    return AuditFinding(
        check=check.name,
        severity=check.severity.value,
        about=check.about,
        count=int(rows["count"].sum()),
        rows=shown.table,
        notes=shown.notes,
    )


def gather_telemetry(cells: pl.DataFrame, tables: Tables, found: pl.DataFrame, folders: Sequence[Path]) -> pl.DataFrame:
    """Collect the telemetry of the sampled ``cells``, from tables or the traces in result ``folders``."""
    records = cells.filter("sampled").select("record").unique()
    keys = (
        found.select("record", "run_id", "cell_id", "attempt").unique("record").join(records, on="record", how="semi")
    )
    parts = [tables.telemetry] if tables.telemetry is not None else []
    if folders:
        parts.append(read_sampled_traces(folders, keys))
    whole = pl.concat(parts).unique(("run_id", "cell_id", "attempt", "at_ns")) if parts else None
    return cell_choice.read_telemetry(cells, keys, whole)


def gather_details(tables: Tables, found: pl.DataFrame, contents: ReportContents) -> PageDetails:
    """Collect what only the HTML page shows, beside ``contents``; ``found`` are the outcomes from :func:`gather`."""
    digests = {*found["candidate_sha256"].drop_nulls(), *found["problem_sha256"].drop_nulls()}
    cells = cell_choice.choose_cells(found, tables)
    questions = tuple(answer_questions(tables))
    return PageDetails(
        cells=cells,
        samples=cell_choice.read_samples(cells, tables),
        telemetry=gather_telemetry(cells, tables, found, contents.record_folders),
        nights=time_scatter.nights(tables.cells),
        spreads=time_scatter.spreads(found),
        leaderboard=make_leaderboard(tables),
        sources=find_source_texts(contents.matrices, digests),
        questions=questions,
        generated=find_rounds_and_money(tables, questions),
    )
