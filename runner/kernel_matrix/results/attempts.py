"""Choice of the rows that count: of the latest attempts, and of workloads that are not held out."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

_BY_TIME = ("started_at", "attempt", "run_id", "record")
"""Sort order of attempts; of those that started at the same moment, the record merged last counts."""


def is_shown() -> pl.Expr:
    """Flag rows of ``cells`` about workloads that are not held out; of these only the status of the attempt counts."""
    return ~pl.col("held_out").fill_null(value=False)


def latest_attempts(cells: pl.LazyFrame, key: Sequence[str]) -> pl.LazyFrame:
    """Return the latest ``record`` of the attempts that agree in ``key``, and the number of those ``attempts``.

    Args:
        cells: Frame with the columns of ``CELLS``.
        key: Columns that identify a cell.

    Returns:
        The columns of ``key``, ``record`` and ``attempts``, in no order.
    """
    return (
        cells.select(*dict.fromkeys((*key, *_BY_TIME)))
        .filter(pl.col("record").is_first_distinct())
        .group_by(key)
        .agg(pl.col("record").sort_by(_BY_TIME).last(), pl.len().alias("attempts"))
    )
