"""Spread of times, and their change from night to night: two small tables for two charts."""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.analysis.outcomes import sessions

SPREADS: Final = {
    "spread_within": "within a session",
    "spread_between": "between sessions",
    "machine_drift": "machine drift",
    "code_drift": "code drift",
}
"""Column of outcomes → its name in the chart; all are shares of the time."""
_SIDES: Final = ("candidate", "baseline")


def spreads(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Compute per ``group`` and kind of :data:`SPREADS` the number of ``cells``, median, 90th percentile and maximum.

    The groups are GPUs, or where there is only one GPU, dtypes.
    """
    group = pl.col("gpu" if outcomes["gpu"].n_unique() > 1 else "dtype").cast(pl.String).alias("group")
    return (
        outcomes.lazy()
        .select(group, *(pl.col(column).abs().alias(kind) for column, kind in SPREADS.items()))
        .unpivot(index="group", variable_name="kind", value_name="spread")
        .filter(pl.col("spread").is_finite())
        .group_by("group", "kind")
        .agg(
            pl.len().cast(pl.Int32).alias("cells"),
            pl.col("spread").median().alias("median"),
            pl.col("spread").quantile(0.9, "linear").alias("p90"),
            pl.col("spread").max().alias("max"),
        )
        .sort("group", "kind")
        .collect()
    )


def nights(cells: pl.LazyFrame) -> pl.DataFrame:
    """Compute per GPU, toolchain and night the change of times against each cell's own mean over all nights.

    Each cell is compared with itself, so a night with other cells does not look faster or slower.

    Returns:
        ``candidate`` and ``baseline``: mean over cells of log(time of the night ÷ geometric mean over the cell's
        nights), as a share; ``cells``: number of cells timed in more than one night; ``driver`` of most sessions.
    """
    place = ("gpu", "toolchain")
    each = (
        sessions(cells)
        .group_by(*place, "cell_id", "workload", "night")
        .agg(
            pl.col("candidate_median_ns").log().mean().alias("candidate"),
            pl.col("baseline_median_ns").log().mean().alias("baseline"),
            pl.col("driver").first(),
        )
        .with_columns(pl.col("night").n_unique().over("cell_id", "workload").alias("nights"))
        .filter(pl.col("nights") > 1)
        .with_columns(pl.col(name) - pl.col(name).mean().over("cell_id", "workload") for name in _SIDES)
    )
    return (
        each.group_by(*place, "night")
        .agg(
            *(pl.col(name).filter(pl.col(name).is_finite()).mean().exp() - 1 for name in _SIDES),
            pl.len().cast(pl.Int32).alias("cells"),
            pl.col("driver").drop_nulls().mode().sort().first(),
        )
        .sort(*place, "night")
        .collect(engine="streaming")
    )
