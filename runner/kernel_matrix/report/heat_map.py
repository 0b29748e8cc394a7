"""The heat map GPU × problem: the best candidate that passed, and the number that passed.

A candidate *passes* at (GPU, problem, dtype, toolchain) when it passes with every workload that counts there; its
speed-up is the geometric mean over those that every GPU with times of the problem has, if there are any: a small
shape on one GPU says nothing about a large one on another. The *best* has the highest speed-up, which is biased
upwards where many noisy candidates compete, so its verdict and grade are shown with it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import polars as pl

from kernel_matrix.model.enums import Grade, Verdict

PLACE: Final = ("gpu", "problem", "dtype", "toolchain")

MIXED: Final = "mixed"
"""The candidate's workloads have different verdicts."""
FAILED: Final = "failed"
"""Candidates ran and none passed."""
UNCOUNTED: Final = "uncounted"
"""No candidate counts: infrastructure failure, invalid problem, or unsupported here."""
UNTIMED: Final = "untimed"
"""A candidate passed, but its times cannot be compared."""

STATES: Final = ("faster", "equivalent", "inconclusive", MIXED, UNTIMED, "slower", FAILED, UNCOUNTED)


def _word(column: str, words: type[Enum]) -> pl.Expr:
    """Map an enum's physical number back to its word; grouping by numbers is much faster than by text."""
    places = {place: word.value for place, word in enumerate(words)}
    return pl.col(column).replace_strict(places, default=None, return_dtype=pl.String)


def build_heat_map(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Build one row per GPU × problem × dtype × toolchain.

    Returns:
        ``candidates`` (that count), ``passed``, ``uncounted``, ``best`` (speed-up), ``mean`` (geometric mean of the
        speed-ups of all that passed), ``best_candidate``, ``state`` (of :data:`STATES`) and ``grade`` of the best.
    """
    usable = pl.col("speedup").is_finite() & (pl.col("speedup") > 0) & pl.col("_alike")
    verdict = pl.col("verdict").filter(pl.col("_alike")).to_physical()
    each = (
        _with_common_workloads(outcomes.lazy())
        .group_by(*PLACE, "category", "candidate")
        .agg(
            pl.col("counted").any(),
            pl.col("passed").all().alias("passed") & pl.col("counted").any(),
            pl.col("speedup").filter(usable).log().mean().alias("_log"),
            verdict.min().alias("_least"),
            verdict.max().alias("_most"),
            pl.col("grade").to_physical().max(),
        )
        .with_columns(
            state=pl.when(pl.col("_least") != pl.col("_most")).then(pl.lit(MIXED)).otherwise(_word("_most", Verdict)),
            grade=_word("grade", Grade),
        )
    )
    best = pl.col("passed") & pl.col("_log").is_not_null()
    fastest = pl.struct("_log", "candidate", "state", "grade").filter(best).last()
    return (
        each.sort("_log", "candidate")
        .group_by(*PLACE, maintain_order=True)
        .agg(
            pl.col("category").first(),
            pl.col("counted").sum().cast(pl.Int32).alias("candidates"),
            pl.col("passed").sum().cast(pl.Int32),
            (~pl.col("counted")).sum().cast(pl.Int32).alias("uncounted"),
            pl.col("_log").filter(best).mean().exp().alias("mean"),
            fastest.alias("_best"),
        )
        .with_columns(
            best=pl.col("_best").struct.field("_log").exp(),
            best_candidate=pl.col("_best").struct.field("candidate"),
            grade=pl.col("_best").struct.field("grade"),
            state=pl.when(pl.col("candidates") == 0)
            .then(pl.lit(UNCOUNTED))
            .when(pl.col("passed") == 0)
            .then(pl.lit(FAILED))
            .otherwise(pl.col("_best").struct.field("state").fill_null(UNTIMED)),
        )
        .drop("_best")
        .sort(*PLACE)
        .collect()
    )


def _with_common_workloads(outcomes: pl.LazyFrame) -> pl.LazyFrame:
    """Flag, as ``_alike``, outcomes of workloads that all GPUs with times of the problem and dtype have.

    Where no workload is common, all are flagged.
    """
    key = ("problem", "dtype")
    timed = outcomes.filter(pl.col("speedup").is_not_null())
    gpus = timed.group_by(key).agg(pl.col("gpu").n_unique().alias("_all"))
    common = (
        timed.group_by(*key, "ranks", "workload")
        .agg(pl.col("gpu").n_unique().alias("_gpus"))
        .join(gpus, on=key, nulls_equal=True)
        .filter(pl.col("_gpus") == pl.col("_all"))
        .select(*key, "ranks", "workload", _common=pl.lit(True))
    )
    any_common = common.select(*key, _some=pl.lit(True)).unique()
    return (
        outcomes.join(common, on=[*key, "ranks", "workload"], how="left", nulls_equal=True)
        .join(any_common, on=key, how="left", nulls_equal=True)
        .with_columns(_alike=pl.col("_common").fill_null(False) | pl.col("_some").is_null())
    )


def overall(grid: pl.DataFrame) -> pl.DataFrame:
    """Reduce the heat map to one row per GPU × problem: the best dtype and toolchain, and the sums of the counts."""
    rank = pl.col("best").fill_null(-1.0)
    return (
        grid.sort(rank, pl.col("state").replace_strict({state: -i for i, state in enumerate(STATES)}))
        .group_by("gpu", "problem", maintain_order=True)
        .agg(
            pl.col("candidates", "passed").sum(),
            pl.col("best", "best_candidate", "state", "grade").last(),
        )
        .sort("gpu", "problem")
    )
