"""Two-sided quantiles at the level of every interval: the half-width of a 95 % interval in standard errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from kernel_matrix.measure.intervals import LEVEL


def normal_quantile() -> float:
    """Compute the quantile of the normal distribution."""
    from scipy.special import ndtri  # type: ignore[import-untyped]  # noqa: PLC0415  # no types; loads for 0.2 s

    return float(ndtri((1 + LEVEL) / 2))


def t_quantile(degrees: Any) -> Any:
    """Compute Student's quantile for degrees of freedom, a number or an array; NaN where they are not above 0."""
    from scipy.special import stdtrit  # noqa: PLC0415  # loads for 0.2 s

    several = np.asarray(degrees, dtype=np.float64)
    return stdtrit(np.where(several > 0, several, np.nan), (1 + LEVEL) / 2)


def of_sessions(count: pl.Expr) -> pl.Expr:
    """Compute Student's quantile for the mean of ``count`` sessions; null for fewer than two."""
    return count.map_batches(_of_counts, pl.Float64, is_elementwise=True)


def _of_counts(counts: pl.Series) -> pl.Series:
    distinct = counts.unique().drop_nulls()
    enough = distinct.filter(distinct > 1)
    quantiles = pl.Series(t_quantile(enough.to_numpy().astype(np.float64) - 1), dtype=pl.Float64)
    found: pl.Series = counts.replace_strict(enough, quantiles, default=None, return_dtype=pl.Float64)
    return found
