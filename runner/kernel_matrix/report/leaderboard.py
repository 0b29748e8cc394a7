"""Leaderboards: candidates of each problem, and methods over problems, with intervals and ties.

Two candidates are compared by the logarithm of their times, where both passed with the same workload, dtype, toolchain
and GPU. A rank is a range: from one more than the number of those that are surely faster, to the number of those that
are not surely slower. *Surely* is by the 95 % interval of the difference; without a known noise nothing is sure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.mean_ratios import LogRatios, mean_ratios
from kernel_matrix.analysis.outcomes import ordinary
from kernel_matrix.analysis.quantiles import of_degrees, wilson
from kernel_matrix.analysis.standings import Standing, standings
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import NothingSelectedError

MOST_RANKED: Final = 40
"""Candidates of one problem and GPU that are compared with each other: the fastest."""
MOST_METHODS: Final = 12
"""Methods that are compared with each other: those with the most problems."""

_KEY: Final = ("problem", "ranks", "gpu", "toolchain", "dtype", "workload")
_GROUP: Final = ("problem", "gpu")
_FACTS: Final = ("language", "origin_method", "origin_model")
_METHOD: Final = ("origin_method", "origin_model")
CANDIDATES: Final[dict[str, pl.DataType]] = {
    "rank": pl.Int64(), "rank_high": pl.Int64(), "problem": pl.String(), "candidate": pl.String(), "gpu": pl.String(),
    "speedup": pl.Float64(), "low": pl.Float64(), "high": pl.Float64(), "cells": pl.Int64(), "passed": pl.Int64(),
    "language": pl.String(), "origin_method": pl.String(), "origin_model": pl.String(),
}  # fmt: skip
"""``rank`` to ``rank_high``: place among those that pass all their cells; ``speedup`` with its 95 % interval from the
noise of times: geometric mean over what passed; ``cells`` (cell × workload) that count, and how many ``passed``."""
METHODS: Final[dict[str, pl.DataType]] = {
    "rank": pl.Int64(), "rank_high": pl.Int64(), "origin_method": pl.String(), "origin_model": pl.String(),
    "speedup": pl.Float64(), "low": pl.Float64(), "high": pl.Float64(), "problems": pl.Int64(),
    "candidates": pl.Int64(), "correct_rate": pl.Float64(), "correct_low": pl.Float64(), "correct_high": pl.Float64(),
}  # fmt: skip
"""``speedup``: geometric mean over problems, with its 95 % interval over problems; ``correct_rate``: share of the
candidates that pass all their cells, with Wilson's 95 % interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """Candidates and methods in order."""

    candidates: pl.DataFrame
    """See :data:`CANDIDATES`."""
    methods: pl.DataFrame
    """See :data:`METHODS`; empty where there is only one method."""


def make_leaderboard(tables: Tables) -> Leaderboard:
    """Rank the candidates and methods of ``tables``; controls and references take no part."""
    try:
        found = ordinary(standings(tables.cells).table)
    except NothingSelectedError:
        return Leaderboard(candidates=pl.DataFrame(schema=CANDIDATES), methods=pl.DataFrame(schema=METHODS))
    counted = found.filter(pl.col("standing").cast(pl.String).is_in([Standing.PASSED.value, Standing.FAILED.value]))
    rows = counted.with_columns(
        pl.col("gpu").fill_null("–"),
        pl.col("language").cast(pl.String),
        passed=pl.col("standing").cast(pl.String) == Standing.PASSED.value,
        time=pl.col("candidate_ns").log(),
        gain=pl.when(pl.col("speedup") > 0).then(pl.col("speedup").log()),
        variance=pl.col("log_error") ** 2,
        gain_variance=pl.col("log_error") ** 2 + pl.col("baseline_error") ** 2,
        degrees=pl.min_horizontal("log_degrees", "baseline_degrees"),
    )
    return Leaderboard(candidates=_rank_candidates(rows), methods=_rank_methods(rows))


def _rank_candidates(rows: pl.DataFrame) -> pl.DataFrame:
    timed = pl.col("gain").is_finite()
    error = pl.col("gain_variance").filter(timed).sum().sqrt() / timed.sum()
    known = pl.col("gain_variance").filter(timed).null_count() == 0
    each = rows.group_by(*_GROUP, "candidate").agg(
        pl.col(_FACTS).first(),
        pl.len().cast(pl.Int64).alias("cells"),
        pl.col("passed").sum().cast(pl.Int64),
        pl.col("gain").filter(timed).mean(),
        pl.when(known).then(error).alias("error"),
        pl.col("degrees").min(),
    )
    reach = pl.col("error") * of_degrees(pl.col("degrees"))
    whole = (pl.col("passed") == pl.col("cells")) & pl.col("gain").is_not_null()
    ranked = each.filter(whole).filter(
        pl.col("gain").rank("ordinal", descending=True).over(_GROUP) <= MOST_RANKED
    ).select(*_GROUP, "candidate")  # fmt: skip
    return (
        each.join(_ranges(rows, ranked), on=[*_GROUP, "candidate"], how="left")
        .with_columns(
            speedup=pl.col("gain").exp(), low=(pl.col("gain") - reach).exp(), high=(pl.col("gain") + reach).exp()
        )
        .sort("speedup", *_GROUP, "candidate", descending=[True, False, False, False], nulls_last=True)
        .select(pl.col(name).cast(dtype) for name, dtype in CANDIDATES.items())
    )


def _ranges(rows: pl.DataFrame, ranked: pl.DataFrame) -> pl.DataFrame:
    """Compute ``rank`` and ``rank_high`` of the candidates ``ranked``, from all pairs of one problem and GPU."""
    usable = rows.filter(pl.col("time").is_finite()).join(ranked, on=[*_GROUP, "candidate"], how="semi")
    sides = usable.select(*_KEY, "candidate", "time", "variance", "degrees").lazy()
    pairs = sides.join(sides, on=list(_KEY), how="inner", nulls_equal=True, suffix="_other")
    behind = (
        pairs.filter(pl.col("candidate") != pl.col("candidate_other"))
        .group_by(*_GROUP, "candidate", "candidate_other")
        .agg(
            (pl.col("time") - pl.col("time_other")).mean().alias("gap"),
            # A variance that is not known makes the whole unknown.
            ((pl.col("variance") + pl.col("variance_other")).fill_null(np.inf).sum().sqrt() / pl.len()).alias("error"),
            pl.min_horizontal("degrees", "degrees_other").min().alias("degrees"),
        )
        .with_columns(reach=pl.col("error") * of_degrees(pl.col("degrees").fill_null(1.0)))
        .group_by(*_GROUP, "candidate")
        .agg(
            (pl.col("gap") > pl.col("reach")).sum().cast(pl.Int64).alias("faster"),
            (-pl.col("gap") > pl.col("reach")).sum().cast(pl.Int64).alias("slower"),
        )
    )
    sizes = ranked.lazy().with_columns(pl.len().over(_GROUP).cast(pl.Int64).alias("size"))
    return (
        sizes.join(behind, on=[*_GROUP, "candidate"], how="left")
        .select(
            *_GROUP,
            "candidate",
            rank=1 + pl.col("faster").fill_null(0),
            rank_high=pl.col("size") - pl.col("slower").fill_null(0),
        )
        .collect()
    )


def _rank_methods(rows: pl.DataFrame) -> pl.DataFrame:
    named = rows.with_columns(pl.col(_METHOD).fill_null("–"))
    sources = named.group_by(*_METHOD, "problem", "candidate").agg(pl.col("passed").all())
    counts = sources.group_by(_METHOD).agg(
        pl.col("problem").n_unique().cast(pl.Int64).alias("problems"),
        pl.len().cast(pl.Int64).alias("candidates"),
        pl.col("passed").mean().alias("correct_rate"),
    )
    if counts.height < 2:
        return pl.DataFrame(schema=METHODS)
    chosen = counts.sort("problems", *_METHOD, descending=[True, False, False]).head(MOST_METHODS)
    numbered = chosen.select(_METHOD).with_row_index("method")
    timed = named.filter(pl.col("gain").is_finite()).join(numbered, on=_METHOD, how="inner")
    means = mean_ratios(_log_ratios(timed, "gain", "gain_variance"), timed["method"].to_numpy().astype(np.intp))
    speeds = means.select(
        pl.col("slice").cast(pl.UInt32).alias("method"), pl.col("ratio").alias("speedup"), "low", "high"
    )
    low, high = wilson(pl.col("correct_rate"), pl.col("candidates"))
    return (
        chosen.join(numbered, on=_METHOD)
        .join(speeds, on="method", how="left")
        .join(_method_ranges(timed, numbered.height), on="method", how="left")
        .with_columns(correct_low=low, correct_high=high)
        .sort("speedup", *_METHOD, descending=[True, False, False], nulls_last=True)
        .select(pl.col(name).cast(dtype) for name, dtype in METHODS.items())
    )


def _method_ranges(timed: pl.DataFrame, methods: int) -> pl.DataFrame:
    """Compute the ranges of ranks of methods from their speed-ups where both have some, over problems."""
    each = timed.group_by(*_KEY, "method").agg(pl.col("gain").mean(), pl.col("gain_variance").mean())
    parts = list(_method_pairs(each, methods))
    pairs = pl.concat(parts) if parts else each.clear().with_columns(pair=pl.lit(0), gap="gain", gap_variance="gain")
    found = mean_ratios(_log_ratios(pairs, "gap", "gap_variance"), pairs["pair"].to_numpy().astype(np.intp))
    ahead = dict.fromkeys(range(methods), 0)
    behind = dict(ahead)
    for pair, low, high in found.select("slice", "low", "high").iter_rows():
        method, _other = divmod(pair, methods)
        ahead[method] += low is not None and low > 1
        behind[method] += high is not None and high < 1
    ranks = [(method, 1 + behind[method], methods - ahead[method]) for method in range(methods)]
    return pl.DataFrame(ranks, schema={"method": pl.UInt32, "rank": pl.Int64, "rank_high": pl.Int64}, orient="row")


def _method_pairs(each: pl.DataFrame, methods: int) -> Iterator[pl.DataFrame]:
    by_method = {method: each.filter(pl.col("method") == method) for method in range(methods)}
    for one, other in permutations(range(methods), 2):
        both = by_method[one].join(by_method[other], on=list(_KEY), nulls_equal=True, suffix="_other")
        yield both.select(
            *_KEY,
            pair=pl.lit(one * methods + other),
            gap=pl.col("gain") - pl.col("gain_other"),
            gap_variance=pl.col("gain_variance") + pl.col("gain_variance_other"),
        )


def _log_ratios(rows: pl.DataFrame, log: str, variance: str) -> LogRatios:
    cells = rows.select(pl.struct("problem", "gpu", "toolchain", "dtype").rank("dense").cast(pl.Int64) - 1)
    problems = rows.select(pl.col("problem").rank("dense").cast(pl.Int64) - 1)
    return LogRatios(
        log=rows[log].to_numpy(),
        variance=rows[variance].fill_null(0.0).to_numpy(),
        cell=cells.to_series().to_numpy().astype(np.intp),
        problem=problems.to_series().to_numpy().astype(np.intp),
        weight=np.ones(rows.height),
    )
