"""Failures grouped by reason: messages that differ only in their numbers are one reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from kernel_matrix.model.enums import Fault

MOST: Final = 500
"""Groups on the page, largest first."""
REASON_HEAD: Final = ("status", "fault", "reason", "outcomes", "candidates")
_LONGEST: Final = 200
_NUMBER: Final = r"(^|[^A-Za-z0-9])(?:0x[0-9a-fA-F]+|[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?)"
"""A number that is not part of a name, as it is in ``w8a8`` and ``int32``; what stands before it stays."""


def group_failures(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Group failed outcomes by reason; unexpected ones first, then the most frequent.

    Returns:
        ``status``, ``stage``, ``fault``, ``reason`` (the message with ``#`` for every number), ``outcomes``,
        ``candidates``, ``gpus`` (their names), ``as_expected`` (outcomes whose candidate is declared to end with this
        status, as controls are), ``example`` (one original message) and ``example_cell``.
    """
    failed = outcomes.lazy().filter(pl.col("fault").cast(pl.String) != Fault.NONE.value)
    message = pl.col("message").fill_null("").str.slice(0, _LONGEST).str.replace_all(r"\s+", " ")
    return (
        failed.with_columns(
            reason=message.str.replace_all(_NUMBER, "${1}#").str.strip_chars(),
            as_expected=pl.col("status").cast(pl.String) == pl.col("expect").cast(pl.String),
        )
        .group_by("status", "stage", "fault", "reason")
        .agg(
            pl.len().cast(pl.Int32).alias("outcomes"),
            pl.col("candidate").n_unique().cast(pl.Int32).alias("candidates"),
            pl.col("gpu").unique().sort().alias("gpus"),
            pl.col("as_expected").fill_null(value=False).sum().cast(pl.Int32),
            message.sort_by("cell_id").first().alias("example"),
            pl.col("cell_id").sort().first().alias("example_cell"),
        )
        .sort(
            pl.col("outcomes") - pl.col("as_expected"),
            "outcomes",
            pl.col("status").cast(pl.String),
            "reason",
            descending=[True, True, False, False],
        )
        .collect()
    )


def unexpected(groups: pl.DataFrame) -> pl.DataFrame:
    """Keep the groups of :func:`group_failures` that have an outcome not declared to end with this status."""
    return groups.filter(pl.col("outcomes") > pl.col("as_expected"))


def reason_cells(row: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    """Write the columns :data:`REASON_HEAD` of one group as text."""
    return (
        row["status"].replace("_", " "),
        row["fault"],
        row["reason"] or "no evidence",
        f"{row['outcomes'] - row['as_expected']:,}",
        f"{row['candidates']:,}",
    )
