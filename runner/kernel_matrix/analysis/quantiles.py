"""Two-sided quantiles at the level of every interval: the half-width of a 95 % interval in standard errors."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.measure.intervals import LEVEL, t_quantile

NORMAL_MAD: Final = 1.4826
"""Standard deviation of a normal distribution, divided by its median absolute deviation."""


def normal_quantile() -> float:
    """Compute the quantile of the normal distribution."""
    from scipy.special import ndtri  # type: ignore[import-untyped]  # noqa: PLC0415  # no types; loads for 0.2 s

    return float(ndtri((1 + LEVEL) / 2))


def wilson(share: pl.Expr, count: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Compute the bounds of Wilson's interval of a ``share`` of ``count`` independent ones (JASA 22, 1927)."""
    z2 = normal_quantile() ** 2
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = (z2 * (share * (1 - share) / count + z2 / (4 * count**2))).sqrt() / (1 + z2 / count)
    return (middle - half).clip(0.0), (middle + half).clip(upper_bound=1.0)


def of_sessions(count: pl.Expr) -> pl.Expr:
    """Compute Student's quantile for the mean of ``count`` sessions; fewer than two have none."""
    return count.map_batches(_of_counts, pl.Float64, is_elementwise=True)


def _of_counts(counts: pl.Series) -> pl.Series:
    distinct = counts.unique().drop_nulls()
    enough = distinct.filter(distinct > 1)
    quantiles = pl.Series(t_quantile(enough.to_numpy().astype(np.float64) - 1), dtype=pl.Float64)
    found: pl.Series = counts.replace_strict(enough, quantiles, default=None, return_dtype=pl.Float64)
    return found


def of_degrees(degrees: pl.Expr) -> pl.Expr:
    """Compute Student's quantile for any degrees of freedom, by interpolation: those of cells are all different."""
    return degrees.map_batches(_interpolated, pl.Float64, is_elementwise=True)


_INVERSE_DEGREES: Final = np.linspace(1e-12, 1.0, 4001)


def _interpolated(degrees: pl.Series) -> pl.Series:
    """Interpolate over 1 ÷ degrees, in which the quantile is smooth; below 1 degree it is that of 1."""
    inverse = (1 / degrees).to_numpy()
    return pl.Series(np.interp(inverse, _INVERSE_DEGREES, t_quantile(1 / _INVERSE_DEGREES)))
