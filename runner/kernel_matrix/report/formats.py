"""Registry of the report's formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import polars as pl

from kernel_matrix.analysis.comparison import Comparison
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import UsageError
from kernel_matrix.plugins import Registry
from kernel_matrix.report.contents import AuditFinding, ReportContents, gather

Render = Callable[[ReportContents, Tables, pl.DataFrame], str]
"""Contents, tables and outcomes → the text of the file."""

FORMATS: Registry[Render] = Registry(
    "report format",
    "kernel_matrix.report_formats",
    {
        "html": "kernel_matrix.report.page:page",
        "md": "kernel_matrix.report.summary:markdown",
        "text": "kernel_matrix.report.summary:text",
    },
    members=("__call__",),
)
"""Format → the function that writes it."""

_BY_ENDING: Final = {"": "html", ".htm": "html", ".markdown": "md", ".txt": "text"}


def format_of(file: Path) -> str:
    """Return the format for the file name's ending; ``html`` where it has none.

    Raises:
        UsageError: No format has that ending.
    """
    ending = file.suffix.lower()
    name = _BY_ENDING.get(ending, ending[1:])
    if name not in FORMATS:
        known = ", ".join(f".{one}" for one in (*FORMATS, "txt") if one != "text")
        raise UsageError(f"{file}: no report has the ending {ending}", next_step=f"{known}, or name a --format")
    return name


def render(name: str) -> Render:
    """Return the function that writes the format ``name``.

    Raises:
        UsageError: There is no such format.
        PluginError: It is one of another package and cannot be used.
    """
    if name not in FORMATS:
        raise UsageError(f"unknown report format {name!r}", next_step=f"Use one of {', '.join(FORMATS)}.")
    return FORMATS.load(name)


def compose(
    name: str,
    tables: Tables,
    *,
    title: str,
    made_at: datetime,
    folders: Sequence[str],
    comparison: Comparison | None = None,
    findings: Sequence[AuditFinding] | None = None,
    matrices: Sequence[Path] = (),
    record_folders: Sequence[Path] = (),
) -> str:
    """Return the report about ``tables`` in the format ``name``.

    Args:
        name: One of :data:`FORMATS`.
        tables: The results.
        title: The report's title.
        made_at: When it is made.
        folders: The folders the results came from.
        comparison: With earlier results, if one was made.
        findings: The audit's, if one was made.
        matrices: Matrix files through which the sources of candidates are found.
        record_folders: Result folders, in which traces are looked for.

    Raises:
        UsageError: There is no such format.
    """
    write = render(name)
    contents, outcomes = gather(
        tables,
        title=title,
        made_at=made_at,
        folders=folders,
        comparison=comparison,
        findings=findings,
        matrices=matrices,
        record_folders=record_folders,
    )
    return write(contents, tables, outcomes)
