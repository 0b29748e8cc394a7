"""The formats of a report: one line each."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final

import polars as pl

from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import UsageError
from kernel_matrix.report.contents import ReportContents

Render = Callable[[ReportContents, Tables, pl.DataFrame], str]
"""Contents, tables and the outcomes → the whole file."""

_FORMATS: Final = {
    "html": "kernel_matrix.report.page:page",
    "md": "kernel_matrix.report.summary:markdown",
    "text": "kernel_matrix.report.summary:text",
}
"""Format → the function that writes it; imported when it is asked for."""

_BY_ENDING: Final = {".md": "md", ".txt": "text"}

FORMATS: Final = tuple(_FORMATS)


def format_of(file: Path) -> str:
    """The format that the ending of ``file`` asks for: ``html`` where it is no other's."""
    return _BY_ENDING.get(file.suffix.lower(), "html")


def render(name: str) -> Render:
    """What writes the format ``name``.

    :raises UsageError: for one that there is not.
    """
    if name not in _FORMATS:
        raise UsageError(f"--format {name!r} is no format of a report", next_step=f"Use one of {', '.join(FORMATS)}.")
    module, _, function = _FORMATS[name].partition(":")
    found: Render = getattr(import_module(module), function)
    return found
