"""The audit check ``much_slower``: a candidate that takes ten times as long as its baseline."""

from __future__ import annotations

import polars as pl

from kernel_matrix.analysis.audit.check import AuditCheck, Severity, make_findings
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables

MOST = 10
"""Times the baseline's time; below it, a candidate may be for other sizes."""


def look(tables: Tables) -> pl.LazyFrame:
    """Return one finding for each row that is beyond :data:`MOST`."""
    ratio = pl.col("candidate_median_ns") / pl.col("baseline_median_ns")
    rows = tables.cells.filter(ratio > MOST).with_columns(ratio=ratio)
    return make_findings(rows, sentence("{}× as long as the baseline", pl.col("ratio").round(1)), worst=pl.col("ratio"))


CHECK = AuditCheck(
    name="much_slower",
    severity=Severity.WARNING,
    about=f"A candidate takes more than {MOST} times as long as its baseline.",
    look=look,
)
