"""How far times can be trusted: outcomes that passed, by grade."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from kernel_matrix.analysis.questions import Answer

NEEDED: Final = ("grade",)
"""Columns of ``OUTCOMES`` that this is told from."""


def by_grade(passed: pl.DataFrame, labels: Sequence[str]) -> Answer:
    """How many outcomes have which grade.

    :param passed: outcomes that passed: :data:`NEEDED` and ``labels``, the columns of the slice.
    """
    grade = pl.col("grade").cast(pl.String).fill_null("none")
    table = passed.group_by(*labels, grade.alias("grade")).agg(pl.len().alias("outcomes"))
    return Answer(
        name="grades",
        title="How far times can be trusted",
        table=table.with_columns(share=pl.col("outcomes") / pl.col("outcomes").sum().over(*labels)).sort(
            *labels, "grade", nulls_last=True
        ),
        meanings={"grade": "A, B or C of docs/results; none where nothing was graded.", "outcomes": "Passed outcomes."},
    )
