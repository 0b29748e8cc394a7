"""Confirmation of flagged changes by running their cells again, in turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from kernel_matrix.analysis.comparison import FLAGGED, ROWS, Change, Comparison
from kernel_matrix.analysis.outcomes import CELL_KEY
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.model.enums import Fault, Status


def rounds(cells: pl.LazyFrame) -> pl.LazyFrame:
    """Merge cells that ran in rounds, as if each had run once with one session per round.

    Every round is a run with each cell once, so sessions of one round belong together. A cell that failed by its own
    fault in any round failed; a round with an infrastructure failure is left out.
    """
    whole = ("cell_id", "host_id", "gpu_uuid")
    rank = (
        pl.when(pl.col("fault") == Fault.CANDIDATE.value)
        .then(0)
        .when(pl.col("status") == Status.PASSED.value)
        .then(1)
        .otherwise(2)
    )
    return cells.with_columns(
        pl.col("record").min().over(whole),
        pl.col("status", "fault", "message").sort_by(rank).first().over(whole),
        pl.col("started_at").min().over(whole),
        pl.col("ended_at").max().over(whole),
        attempt=pl.lit(1, pl.Int32()),
        session=(pl.col("run_id").rank("dense") - 1).cast(pl.Int32),
        run_id=pl.lit("in turns"),
    )


def confirmed(first: Comparison, again: Comparison, impossible: Mapping[str, str]) -> Comparison:
    """Update ``first``: flagged rows that ran again and did not show again become ``inconclusive``.

    ``again`` is the same comparison of the cells that were run again. ``impossible`` maps the id of a cell on the new
    side to the reason why it was not run again; such rows stay flagged.
    """
    key = list(CELL_KEY)
    words = [change.value for change in FLAGGED]
    seen = again.rows.select(
        *key, again="change", again_status="new_status", low="ratio_low", high="ratio_high", again_said=_summary()
    )
    flagged = pl.col("change").is_in(words)
    why_not = pl.col("new_cell_id").replace_strict(dict(impossible), default=None, return_dtype=pl.String)
    rows = first.rows.join(seen, on=key, how="left", nulls_equal=True).with_columns(
        pl.col("change", "again").cast(pl.String), why_not=why_not
    )
    # An infrastructure failure clears no row, nor do times that are too noisy to exclude the first difference.
    excluded = (
        pl.when(pl.col("ratio") > 1).then(pl.col("high") < pl.col("ratio")).otherwise(pl.col("low") > pl.col("ratio"))
    )
    spoke = (pl.col("again_status") == Status.PASSED.value) & ((pl.col("change") == Change.BROKE.value) | excluded)
    shows = pl.col("again").is_in(words).fill_null(value=False)
    cleared = flagged & pl.col("why_not").is_null() & spoke.fill_null(value=False) & ~shows
    was = pl.when(pl.col("reason") != "").then(sentence("{}; ", "reason")).otherwise(pl.lit(""))
    rows = rows.with_columns(
        change=pl.when(cleared).then(pl.lit(Change.INCONCLUSIVE.value)).otherwise("change"),
        reason=pl.when(~flagged)
        .then("reason")
        .when(pl.col("why_not").is_not_null())
        .then(sentence("{}not run again: {}", was, "why_not"))
        .when(cleared)
        .then(sentence("not confirmed: was {}, now {}", "change", "again_said"))
        .when(shows)
        .then(sentence("{}confirmed when run again: {}", was, "again_said"))
        .otherwise(sentence("{}run again, without a result", was)),
    )
    finished = rows.select(pl.col(name).cast(dtype) for name, dtype in ROWS.items()).sort("change", maintain_order=True)
    done, asked = replace(first, rows=finished), first.flagged().with_columns(why_not=why_not)
    note = (
        f"{asked['why_not'].null_count()} of {asked.height} flagged rows were run again, in turns;"
        f" {done.flagged().height} of all stay flagged."
    )
    return replace(done, notes=(note, *first.notes))


def _summary() -> pl.Expr:
    """Summarise the second comparison: ``regression, 4.9 %``."""
    figure = ((pl.col("ratio") - 1) * 100).round(1).cast(pl.String) + " %"
    return pl.concat_str(
        pl.col("change").cast(pl.String),
        pl.when(pl.col("ratio").is_not_null()).then(figure),
        pl.when(pl.col("reason") != "").then("reason"),
        separator=", ",
        ignore_nulls=True,
    )
