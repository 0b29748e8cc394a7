"""Registry of the report's formats."""

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
