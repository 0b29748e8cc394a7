"""What broke, grouped by reason: messages that differ only in their numbers are one reason."""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.model.enums import Fault

MOST: Final = 500
"""Groups that the page carries, largest first."""
_LONGEST: Final = 200
_NUMBER: Final = r"0x[0-9a-fA-F]+|[-+]?\d+([.,]\d+)*(e[-+]?\d+)?"


def failures(outcomes: pl.DataFrame) -> pl.DataFrame:
    """One row per reason, unexpected ones first, then the most frequent.

    Columns: ``status``, ``stage``, ``fault``, ``reason`` (the message with its numbers replaced by ``#``),
    ``outcomes``, ``candidates``, ``gpus`` (their names), ``as_expected`` (outcomes whose candidate is
    declared to end like this, as controls are), ``example`` (one message as it was), ``example_cell``.
    """
    failed = outcomes.lazy().filter(pl.col("fault").cast(pl.String) != Fault.NONE.value)
    message = pl.col("message").fill_null("").str.slice(0, _LONGEST).str.replace_all(r"\s+", " ")
    return (
        failed.with_columns(
            reason=message.str.replace_all(_NUMBER, "#").str.strip_chars(),
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


def unexpected(found: pl.DataFrame) -> pl.DataFrame:
    """The reasons of ``found``, as :func:`failures` gives them, for which not every outcome is declared to end so."""
    return found.filter(pl.col("outcomes") > pl.col("as_expected"))
