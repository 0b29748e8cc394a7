"""The page about a night: the one place that calls :mod:`kernel_matrix.report`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from kernel_matrix.analysis.comparison import Comparison
from kernel_matrix.analysis.tables import open_tables
from kernel_matrix.nightly.durable_write import write_whole
from kernel_matrix.report.contents import gather
from kernel_matrix.report.formats import format_of, render


def write_report(file: Path, tables: Path, *, title: str, made_at: datetime, found: Comparison | None) -> None:
    """Write ``file`` about the merged ``tables``: HTML, or what its ending says (``.md``, ``.txt``).

    :raises KernelMatrixError: when it cannot be made or written.
    """
    write, opened = render(format_of(file)), open_tables([tables])
    contents, outcomes = gather(
        opened,
        title=title,
        made_at=made_at,
        folders=[str(tables)],
        comparison=found,
    )
    write_whole(file, write(contents, opened, outcomes))
