"""Tests of the times of a comparison, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.compared_sides import PASSED, SESSION, Sides
from kernel_matrix.analysis.comparison import ComparedQuantity, ComparisonRules
from kernel_matrix.analysis.differences import (
    LogDifferences,
    NoiseSource,
    benjamini_hochberg,
    default_deviation,
    paired_differences,
    unpaired_differences,
)
from kernel_matrix.analysis.relabelled_sessions import LEVELS

MOST_SMALLEST: Final = float(np.log(100))
"""Logarithm of a change so large that nothing is found."""


_ESTIMATES: Final = {"row": pl.UInt32(), **dict.fromkeys(("effect", "strict", "reach", "p", "smallest"), pl.Float64())}


def _pairs(grid: pl.DataFrame, sides: Sides, key: list[str]) -> pl.DataFrame:
    """Return differences of sessions that were measured in turns: ``row``, ``log``.

    In turns means: the same session number in the same run on the same unit, and the attempts overlap for at least half
    of the longer one.
    """
    base, new = (side.sessions for side in sides)
    joined = base.join(new, on=[*key, "workload", *SESSION], how="inner", suffix="_new")
    start, end = pl.max_horizontal("started_at", "started_at_new"), pl.min_horizontal("ended_at", "ended_at_new")
    longer = pl.max_horizontal(
        pl.col("ended_at") - pl.col("started_at"), pl.col("ended_at_new") - pl.col("started_at_new")
    )
    found = joined.filter((end - start) * 2 >= longer)
    log = (pl.col("value_new") / pl.col("value")).log().alias("log")
    return grid.join(found, on=[*key, "workload"], nulls_equal=True).select("row", log)


def _sessions(grid: pl.DataFrame, sides: Sides, key: list[str]) -> pl.DataFrame:
    """Return the sessions of both sides: ``row``, ``side``, ``run``, ``log``."""
    return pl.concat(
        grid.join(side.sessions, on=[*key, "workload"], nulls_equal=True).select(
            "row", pl.lit(number).alias("side"), pl.col("record").alias("run"), pl.col("value").log().alias("log")
        )
        for number, side in enumerate(sides)
    )


def with_tests(
    rows: pl.DataFrame,
    sides: Sides,
    key: list[str],
    rules: ComparisonRules,
    *,
    mostly_unchanged: bool,
) -> tuple[pl.DataFrame, list[str]]:
    """Test each row: adds ``effect``, its ``reach`` at two levels, ``p``, ``q``, ``test``, ``smallest`` and more.

    Also returns notes on the noise.
    """
    pairs = _pairs(rows, sides, key)
    both = (pl.col("base_state") == PASSED) & (pl.col("new_state") == PASSED)
    timed = (pl.col("base_sessions") > 0) & (pl.col("new_sessions") > 0)
    counts = rows.select("row").join(pairs.group_by("row").agg(pairs=pl.len()), on="row", how="left").sort("row")
    all_paired = (pl.col("pairs") == pl.col("base_sessions")) & (pl.col("pairs") == pl.col("new_sessions"))
    rows = rows.with_columns(counts["pairs"]).with_columns(
        test=pl.when(both & timed & all_paired & (pl.col("pairs") > 1))
        .then(pl.lit("paired"))
        .when(both & timed)
        .then(pl.lit("unpaired"))
    )
    paired, others = (rows.filter(pl.col("test") == test) for test in ("paired", "unpaired"))
    found = []
    if not paired.is_empty():
        found.append(paired_differences(pairs.join(paired, on="row", how="semi"), rules.q))
    if not others.is_empty():
        sessions = _sessions(others, sides, key)
        shared = others["base_gpu_uuid"].is_null().to_numpy()
        default = others.select("row", deviation=default_deviation(others["base_ns"].to_numpy(), shared=shared))
        found.append(unpaired_differences(sessions, default, rules.q, mostly_unchanged=mostly_unchanged))
    estimates = pl.concat([_estimates(one, rules) for one in found] or [pl.DataFrame(schema=_ESTIMATES)])
    estimates = estimates.with_columns(q=pl.Series(benjamini_hochberg(estimates["p"].to_numpy()), dtype=pl.Float64))
    rows = rows.join(estimates, on="row", how="left").sort("row")
    clocks = (pl.col("new_sm_clock_mhz") / pl.col("base_sm_clock_mhz")).log()
    in_cycles = {
        ComparedQuantity.TIME: pl.col("effect") + clocks,
        ComparedQuantity.CYCLES: pl.col("effect"),
        ComparedQuantity.SPEEDUP: pl.lit(None, pl.Float64),
    }
    tick = max(side.tick_ns for side in sides) / pl.min_horizontal("base_ns", "new_ns")
    return rows.with_columns(cycles=in_cycles[rules.of], tick=tick.fill_null(0.0)), list(_notes_on_noise(found))


def _estimates(found: LogDifferences, rules: ComparisonRules) -> pl.DataFrame:
    strict, shown = LEVELS
    smallest = found.smallest(rules.margin)
    columns = {
        "row": found.row,
        "effect": found.effect,
        "strict": found.reach[strict],
        "reach": found.reach[shown],
        "p": found.p,
        "smallest": np.where(smallest < MOST_SMALLEST, np.expm1(np.minimum(smallest, MOST_SMALLEST)), np.nan),
    }
    return pl.DataFrame(columns, nan_to_null=True).cast(_ESTIMATES)  # type: ignore[arg-type]  # a schema is a mapping


def _notes_on_noise(found: Sequence[LogDifferences]) -> Iterator[str]:
    for one in found:
        size = f"{100 * one.run_deviation:.2g} %"
        if one.run_source is NoiseSource.RUNS and one.run_deviation:
            yield f"Two runs of a usual cell differ by a standard deviation of {size}, as its runs show."
        if one.run_source is NoiseSource.PAGE and one.run_deviation:
            yield f"Two runs of a usual cell differ by a standard deviation of {size}, as most cells of this page show."
        if one.run_source is NoiseSource.DEFAULT:
            yield f"No runs show how much two of them differ: a standard deviation of {size} is assumed."
