"""Grades of the times of outcomes that passed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from kernel_matrix.analysis.questions import Answer

NEEDED: Final = ("grade",)
"""Columns of ``OUTCOMES`` that :func:`by_grade` reads."""


def by_grade(passed: pl.DataFrame, labels: Sequence[str]) -> Answer:
    """Count passed outcomes per grade and slice; ``labels`` are the columns of the slice."""
    grade = pl.col("grade").cast(pl.String).fill_null("none")
    table = passed.group_by(*labels, grade.alias("grade")).agg(pl.len().alias("outcomes"))
    return Answer(
        name="grades",
        title="Grades: how far times can be trusted",
        table=table.with_columns(share=pl.col("outcomes") / pl.col("outcomes").sum().over(*labels)).sort(
            *labels, "grade", nulls_last=True
        ),
        meanings={
            "grade": "A, B or C, as `kernel-matrix docs records` says; none where nothing was graded.",
            "outcomes": "Passed outcomes.",
        },
    )
