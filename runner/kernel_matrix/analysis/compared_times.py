"""Tests of the times of a comparison, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    noise_classes,
    paired_differences,
    unpaired_differences,
)
from kernel_matrix.analysis.relabelled_sessions import LEVELS
from kernel_matrix.analysis.sentences import rough_percent

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
    found: list[_ClassDifferences] = []
    for test in ("paired", "unpaired"):
        tested = rows.filter(pl.col("test") == test)
        sessions = pairs if test == "paired" else _sessions(tested, sides, key)
        for cells in noise_classes(_with_default(tested)):
            of_class = sessions.join(cells, on="row", how="semi")
            q = rules.q * cells.height / tested.height  # what a lone difference must reach is that of the whole page
            differences = (
                paired_differences(of_class, q)
                if test == "paired"
                else unpaired_differences(of_class, cells, q, mostly_unchanged=mostly_unchanged)
            )
            found.append(_ClassDifferences(differences, cells, alone=cells.height == tested.height))
    estimates = pl.concat([_estimates(one.differences, rules) for one in found] or [pl.DataFrame(schema=_ESTIMATES)])
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


@dataclass(frozen=True, slots=True)
class _ClassDifferences:
    """Differences of one class of cells."""

    differences: LogDifferences
    cells: pl.DataFrame
    """With their time in base, ``base_ns``."""
    alone: bool
    """True if there is no other class."""

    @property
    def words(self) -> str:
        """Words that tell the class from others, for a note."""
        if self.alone:
            return ""
        times = self.cells.select(low=pl.col("base_ns").min() / 1000, high=pl.col("base_ns").max() / 1000)
        return " with calls of {:.3g} to {:.3g} µs".format(*times.row(0))


def _with_default(rows: pl.DataFrame) -> pl.DataFrame:
    """Return ``row``, ``base_ns`` and ``deviation``, the standard deviation of a session if none is known."""
    shared = rows["base_gpu_uuid"].is_null().to_numpy()
    deviation = default_deviation(rows["base_ns"].to_numpy(), shared=shared)
    return rows.select("row", "base_ns", pl.Series("deviation", deviation, dtype=pl.Float64))


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


def _notes_on_noise(found: Sequence[_ClassDifferences]) -> Iterator[str]:
    for one in found:
        size = rough_percent(one.differences.run_deviation)
        source = one.differences.run_source
        cell = f"a usual cell{one.words}"
        if source is NoiseSource.RUNS and one.differences.run_deviation:
            yield f"Two runs of {cell} differ by a standard deviation of {size}, as its runs show."
        if source is NoiseSource.PAGE and one.differences.run_deviation:
            yield f"Two runs of {cell} differ by a standard deviation of {size}, as most cells of this page show."
        if source is NoiseSource.DEFAULT:
            yield f"No runs show how much two of {cell} differ: a standard deviation of {size} is assumed."
