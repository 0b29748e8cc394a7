"""How times and bandwidths change with the number of ranks that make a call together.

The sizes of a problem are those of each rank, so more ranks do more work: this is weak scaling.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import polars as pl

from kernel_matrix.analysis.outcomes import CELL_KEY
from kernel_matrix.analysis.quantiles import of_degrees
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.standings import standings
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import NothingSelectedError
from kernel_matrix.model.enums import Status

LINE: Final = ("problem", "workload", "dtype", "gpu", "toolchain", "candidate")
"""Columns that identify what is compared over numbers of ranks."""
RATES: Final = ("bus_bytes_per_s", "algorithm_bytes_per_s", "link_share_of_peak")
"""Columns of ``cells`` about the traffic between ranks; null where the tables do not have them."""

SCALING: Final[dict[str, pl.DataType]] = {
    **dict.fromkeys(LINE, pl.String()),
    "ranks": pl.Int32(),
    "sessions": pl.UInt32(),
    **dict.fromkeys(("time_us", "low_us", "high_us", *RATES), pl.Float64()),
    "from_ranks": pl.Int32(),
    **dict.fromkeys(("ratio", "ratio_low", "ratio_high", "efficiency"), pl.Float64()),
}
_CONTENT: Final = ("problem_sha256", "candidate_sha256")
_FIRST: Final = ("ranks", "candidate_ns", "log_error", "log_degrees")
"""Columns of a line's smallest number of ranks that the others are compared with."""


def scaling(tables: Tables, _request: QuestionOptions) -> list[Answer]:
    """Compare times with several numbers of ranks, one row per number of each line, with the columns of ``SCALING``.

    Raises:
        NothingSelectedError: No problem was timed with two numbers of ranks.
    """
    found = standings(tables.cells)
    timed = found.table.drop_nulls(["ranks", "candidate_ns"]).with_columns(_content=_content())
    line = [*LINE, "_content"]
    several = timed.filter(pl.col("ranks").n_unique().over(line) > 1)
    if several.is_empty():
        raise NothingSelectedError(
            "no problem was run with two numbers of ranks, with a candidate that passed and was timed with both",
            next_step="Give problems of several ranks `ranks = [2, 4]` in the matrix, run it, and merge.",
        )
    first = (
        several.sort("ranks").unique(line, keep="first").select(*line, *(pl.col(it).alias(f"_{it}") for it in _FIRST))
    )
    rows = several.join(first, on=line, nulls_equal=True).join(
        _rates(tables.cells), on=[*CELL_KEY, *_CONTENT], how="left", nulls_equal=True
    )
    table = rows.with_columns(**_times(), **_ratios(), from_ranks=pl.col("_ranks"))
    return [
        Answer(
            name="scaling",
            title="Times over numbers of ranks",
            table=table.select(pl.col(name).cast(dtype) for name, dtype in SCALING.items()).sort(
                *LINE, "ranks", nulls_last=True
            ),
            meanings=_MEANINGS,
            notes=[*found.notes, *_notes(table, timed.height - several.height)],
        )
    ]


def _content() -> pl.Expr:
    """Compute what a line has in common; the content of a reference is another with each number of ranks."""
    return pl.when(pl.col("candidate_kind") != "reference").then("candidate_sha256")


def _rates(cells: pl.LazyFrame) -> pl.DataFrame:
    """Compute the medians of :data:`RATES` over the sessions of each cell that passed."""
    there = cells.collect_schema().names()
    passed = cells.filter(pl.col("status") == Status.PASSED.value)
    known = passed.with_columns(pl.lit(None, pl.Float64).alias(name) for name in RATES if name not in there)
    return known.group_by(*CELL_KEY, *_CONTENT).agg(pl.col(RATES).median()).collect()


def _times() -> dict[str, pl.Expr]:
    """Compute the times, with the interval that the noise of sessions gives them."""
    time_us, reach = pl.col("candidate_ns") / 1e3, of_degrees(pl.col("log_degrees")) * pl.col("log_error")
    return {"time_us": time_us, "low_us": time_us * (-reach).exp(), "high_us": time_us * reach.exp()}


def _ratios() -> dict[str, pl.Expr]:
    """Compute the ratios to the first time of each line, whose errors are independent (Satterthwaite 1946)."""
    ratio = pl.col("candidate_ns") / pl.col("_candidate_ns")
    own, first = pl.col("log_error") ** 2, pl.col("_log_error") ** 2
    degrees = (own + first) ** 2 / (own**2 / pl.col("log_degrees") + first**2 / pl.col("_log_degrees"))
    reach = pl.when(pl.col("ranks") > pl.col("_ranks")).then(of_degrees(degrees) * (own + first).sqrt())
    bounds = {"ratio_low": ratio * (-reach).exp(), "ratio_high": ratio * reach.exp()}
    return {"ratio": ratio, **bounds, "efficiency": 1 / ratio}


def _notes(table: pl.DataFrame, alone: int) -> Iterator[str]:
    if alone:
        yield f"{alone} timed cells are left out: they were run with one number of ranks only."
    if table["log_error"].has_nulls():
        yield "Without an interval: the tables do not show the noise of a time; more sessions per cell do."
    if table.select(pl.all_horizontal(pl.col(RATES).is_null()).all()).item():
        yield "The traffic between ranks is not known: these problems do not say how many bytes a call sends."


_MEANINGS: Final = {
    "ranks": "processes that make a call together",
    "sessions": "fresh sets of processes that were timed",
    "time_us": "time of a call, microseconds, of the slowest rank: geometric mean over sessions",
    "low_us": "lower bound of its 95 % interval, from the noise of sessions",
    "high_us": "upper bound of it",
    "bus_bytes_per_s": "bytes per second over the link of a rank, median over sessions; comparable between numbers of "
    "ranks, and with the link's bandwidth",
    "algorithm_bytes_per_s": "size of the data of a call per second, median over sessions; falls with more ranks, even "
    "where links are used equally well",
    "link_share_of_peak": "bus_bytes_per_s ÷ the link's bandwidth",
    "from_ranks": "smallest number of ranks with a time of this line: what the next columns compare with",
    "ratio": "time ÷ time with `from_ranks`",
    "ratio_low": "lower bound of its 95 % interval, from the noise of sessions (Student's t)",
    "ratio_high": "upper bound of it",
    "efficiency": "of weak scaling: time with `from_ranks` ÷ time. Sizes of a problem are those of each rank, so 1 "
    "means that more ranks do more work in the same time. Where each rank computes with the inputs of all, as in "
    "all_gather_gemm, its work grows with their number, and the efficiency falls for that reason too",
}
