"""Registry of the report's formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Final

import polars as pl

from kernel_matrix.analysis.comparison import Comparison
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import UsageError
from kernel_matrix.report.contents import AuditFinding, ReportContents, gather

Render = Callable[[ReportContents, Tables, pl.DataFrame], str]
"""Contents, tables and outcomes → the text of the file."""

_FORMATS: Final = {
    "html": "kernel_matrix.report.page:page",
    "md": "kernel_matrix.report.summary:markdown",
    "text": "kernel_matrix.report.summary:text",
}
"""Format → the function that writes it, imported on use."""

_BY_ENDING: Final = {".md": "md", ".txt": "text"}

FORMATS: Final = tuple(_FORMATS)


def format_of(file: Path) -> str:
    """Return the format for the file name's ending; ``html`` for unknown endings."""
    return _BY_ENDING.get(file.suffix.lower(), "html")


def render(name: str) -> Render:
    """Return the function that writes the format ``name``.

    Raises:
        UsageError: There is no such format.
    """
    if name not in _FORMATS:
        raise UsageError(f"unknown report format {name!r}", next_step=f"Use one of {', '.join(FORMATS)}.")
    module, _, function = _FORMATS[name].partition(":")
    found: Render = getattr(import_module(module), function)
    return found


def compose(
    name: str,
    tables: Tables,
    *,
    title: str,
    made_at: datetime,
    folders: Sequence[str],
    comparison: Comparison | None = None,
    findings: Sequence[AuditFinding] | None = None,
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

    Raises:
        UsageError: There is no such format.
    """
    write = render(name)
    contents, outcomes = gather(
        tables, title=title, made_at=made_at, folders=folders, comparison=comparison, findings=findings
    )
    return write(contents, tables, outcomes)
