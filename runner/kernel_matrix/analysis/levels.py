"""Variance per level: sums of squares of every cell, solved for the variance of each level.

The values are session medians; the part of their variance that comes from blocks and samples is subtracted from the
session level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.components import (
    Array,
    NestedLevels,
    SumsOfSquares,
    difference_interval,
    moments_of,
    numbers,
    solve,
    sums_of_squares,
)
from kernel_matrix.analysis.outcomes import aggregate
from kernel_matrix.analysis.parallel import map_threads
from kernel_matrix.analysis.timed_sessions import OF, ONCE, RECURRING, TimedSessions, squares_around
from kernel_matrix.analysis.within import WITHIN

LEVELS: Final = ("night", "host", "unit", "session", "block", "sample")
"""Coarsest first."""
MEDIAN_COSTS: Final = math.pi / 2
"""Variance of the median of normal samples ÷ variance of their mean."""
_PLACES: Final = {RECURRING: ("host", "unit", "night", "session"), ONCE: ("night", "host", "unit", "session")}
"""Chain → its four levels, coarsest first."""
_MEMBERS: Final = ("night", "host", "unit")


def sums_of_cells(measured: TimedSessions, within: pl.DataFrame) -> pl.DataFrame:
    """Compute all sums of squares, one row per cell and measure ``of``."""
    key = ("cell", "host", "unit", "night")
    values = measured.values.lazy().select(
        *key,
        *(pl.col(f"log_{of}").is_not_null().cast(pl.UInt32).alias(f"n_{of}") for of in OF),
        *(pl.col(f"log_{of}").alias(f"mean_{of}") for of in OF),
        *(pl.lit(0.0).alias(f"within_{of}") for of in OF),
    )
    groups = aggregate(
        values,
        key,
        *(pl.col(f"n_{of}").sum() for of in OF),
        *(pl.col(f"mean_{of}").mean() for of in OF),
        *(squares_around(pl.col(f"mean_{of}")).alias(f"within_{of}") for of in OF),
    ).collect()

    def sums(of: str) -> pl.DataFrame:
        inside = within.filter(pl.col("of") == of).drop("of")
        return _sums_of_one(groups, of, measured.chain).join(inside, on="cell", how="left").sort("cell")

    return pl.concat(map_threads(sums, OF))


def _sums_of_one(groups: pl.DataFrame, of: str, chain: NestedLevels) -> pl.DataFrame:
    own = groups.filter(pl.col(f"n_{of}") > 0).select(
        "cell",
        "host",
        "unit",
        "night",
        *(pl.col(f"{name}_{of}").alias(name) for name in ("n", "mean", "within")),
    )
    several = own.filter(pl.col("cell").is_duplicated())  # most cells have one group, which need not be counted
    members = several.group_by("cell").agg(pl.col(name).n_unique().alias(f"{name}s") for name in _MEMBERS)
    return (
        sums_of_squares(own, ["cell"], chain)
        .join(members, on="cell", how="left")
        .with_columns(*(pl.col(f"{name}s").fill_null(1).cast(pl.Int32) for name in _MEMBERS), of=pl.lit(of))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelEstimates:
    """Level → array over rows; NaN where the level cannot be estimated."""

    raw: dict[str, Array]
    low: dict[str, Array]
    high: dict[str, Array]
    degrees: dict[str, Array]

    def with_bounds(self, level: str) -> tuple[Array, Array, Array]:
        """Return estimate and bounds of ``level``; all NaN where it cannot be estimated."""
        raw = self.raw[level]
        unknown = ~np.isfinite(raw)
        low, high = (np.where(unknown, np.nan, each[level]) for each in (self.low, self.high))
        return raw, low, high


def estimates(table: pl.DataFrame, chain: NestedLevels, degrees: Array) -> LevelEstimates:
    """Solve the sums of ``table``, and subtract the part of samples and blocks from the session level."""
    columns = {name: numbers(table, name) for name in WITHIN}
    upper, lower = solve(moments_of(table), degrees), solve(_moments_within(columns))
    raw, low, high = (
        {name: each[:, i] for i, name in enumerate(_PLACES[chain])} for each in (upper.raw, upper.low, upper.high)
    )
    df = {name: degrees[:, i] for i, name in enumerate(_PLACES[chain])}
    for i, name in enumerate(("block", "sample")):
        raw[name], low[name], high[name] = lower.raw[:, i], lower.low[:, i], lower.high[:, i]
        df[name] = columns[f"{name}_degrees"]
    inside, inside_degrees = _explained(raw, columns)
    known = np.flatnonzero(np.isfinite(raw["session"]))
    low["session"][known], high["session"][known] = difference_interval(
        raw["session"][known], df["session"][known], inside[known], inside_degrees[known]
    )
    raw["session"] -= inside
    return LevelEstimates(raw=raw, low=low, high=high, degrees=df)


def _moments_within(columns: dict[str, Array]) -> SumsOfSquares:
    """Make the sums of squares of blocks and samples."""
    levels = ("block", "sample")
    expected = np.zeros((len(columns["blocks"]), 2, 2))
    expected[:, 0, 0], expected[:, 0, 1] = columns["block_factor"], columns["block_degrees"]
    expected[:, 1, 1] = columns["sample_degrees"]
    return SumsOfSquares(
        squares=np.stack([columns[f"{level}_squares"] for level in levels], axis=1),
        degrees=np.stack([columns[f"{level}_degrees"] for level in levels], axis=1),
        expected=expected,
    )


def _explained(raw: dict[str, Array], columns: dict[str, Array]) -> tuple[Array, Array]:
    """Compute the variance of a session's median that comes from its blocks and samples, and its degrees of freedom.

    σ²_block / blocks + π/2 · σ²_sample / samples; 0 where no samples are kept.
    """
    sessions_ = np.maximum(columns["sessions"], 1.0)
    of_blocks = np.maximum(np.nan_to_num(raw["block"]), 0.0) * columns["inverse_blocks"] / sessions_
    of_samples = MEDIAN_COSTS * np.maximum(np.nan_to_num(raw["sample"]), 0.0) * columns["inverse_samples"] / sessions_
    degrees = np.where(of_blocks > 0, columns["block_degrees"], columns["sample_degrees"])
    return of_blocks + of_samples, np.maximum(degrees, 1.0)


def percent(variances: Array) -> pl.Series:
    """Convert variances of logarithms to standard deviations in percent; null for NaN."""
    with np.errstate(invalid="ignore"):
        return pl.Series(100 * np.sqrt(np.maximum(variances, 0.0)), nan_to_null=True)
