"""The report format ``csv``: one line per cell and workload."""

from __future__ import annotations

import polars as pl

from kernel_matrix.analysis.tables import Tables
from kernel_matrix.report.contents import ReportContents

COLUMNS = ("candidate", "workload", "gpu", "toolchain", "dtype", "status", "speedup")


def write(contents: ReportContents, tables: Tables, outcomes: pl.DataFrame) -> str:  # noqa: ARG001  # outcomes are enough
    """Return the text of the file."""
    return outcomes.select(COLUMNS).write_csv()
