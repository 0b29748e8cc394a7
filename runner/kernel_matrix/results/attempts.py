"""Which of several attempts at one cell counts."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

_BY_TIME = ("started_at", "attempt", "run_id", "record")
"""Of attempts that began at one moment, the record that was merged last counts."""


def latest_attempts(cells: pl.LazyFrame, key: Sequence[str]) -> pl.LazyFrame:
    """The ``record`` of the latest of the attempts that are alike in ``key``, and how many ``attempts`` there were.

    :param cells: with the columns of ``CELLS``.
    :return: the columns of ``key``, ``record`` and ``attempts``, in no order.
    """
    return (
        cells.select(*dict.fromkeys((*key, *_BY_TIME)))
        .unique("record")
        .group_by(key)
        .agg(pl.col("record").sort_by(_BY_TIME).last(), pl.len().alias("attempts"))
    )
