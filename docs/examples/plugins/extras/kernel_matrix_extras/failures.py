"""The question ``failures``."""

from __future__ import annotations

import polars as pl

from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.tables import Tables


def failures(tables: Tables, options: QuestionOptions) -> list[Answer]:  # noqa: ARG001  # it has none
    """Return the share of failed cells of each problem, the largest first."""
    failed = (pl.col("status") != "passed").any().over("cell_id")
    cells = tables.cells.with_columns(failed=failed).unique("cell_id")
    table = cells.group_by("problem").agg(cells=pl.len(), failed=pl.col("failed").mean()).sort("failed", "problem")
    return [
        Answer(
            name="failures",
            title="Failed cells by problem",
            table=table.reverse().collect(),
            meanings={"cells": "number of cells", "failed": "share of them that did not pass"},
        )
    ]
