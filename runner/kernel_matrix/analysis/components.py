"""Variance components by the method of moments: sums of squares of nested groups equated to their expectations.

For groups nested in each other, coarsest first, each level's sum of squares (of the means of its groups around those of
the level above) has an expectation that is linear in the variances sought, for any group sizes. Solving these equations
upwards gives unbiased estimates (Searle, Casella and McCulloch, *Variance Components*, 1992, chapter 5; on balanced
data the ``T²`` of Kalibera and Jones, *Rigorous benchmarking in reasonable time*, ISMM 2013, in its corrected print).
Effects may cross groups: a night that all units share is estimated without bias too (Henderson, *Estimation of variance
and covariance components*, Biometrics 9, 1953, method 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from kernel_matrix.analysis.outcomes import aggregate
from kernel_matrix.measure.intervals import LEVEL

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsOfSquares:
    """Sums of squares of many data sets at once; ``m`` data sets, ``l`` levels, coarsest first."""

    squares: Array
    """Shape (m, l): sums of squares of the means of a level's groups around those of the level above."""
    degrees: Array
    """Shape (m, l): groups of a level − groups of the level above; 0 where the level cannot be estimated."""
    expected: Array
    """Shape (m, l, l): factor of level ``j``'s variance in the expectation of ``squares[:, i]``; 0 for ``j < i``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceEstimates:
    """Estimates, each of shape (m, l); NaN where a level cannot be estimated."""

    raw: Array
    """Unbiased estimate; may be negative."""
    low: Array
    high: Array
    """Bounds of the variance at :data:`~kernel_matrix.measure.intervals.LEVEL`, not below 0."""


def solve(moments: SumsOfSquares, interval_degrees: Array | None = None) -> VarianceEstimates:
    """Estimate the variance of each level.

    ``interval_degrees`` (m, l) are degrees of freedom for intervals, if they differ from ``moments.degrees`` because
    squares of data sets that share their groups were added.
    """
    count, levels = moments.squares.shape
    known = (moments.degrees > 0) & (np.diagonal(moments.expected, axis1=1, axis2=2) > 1e-9)
    factors = np.zeros((count, levels, levels))  # estimate of level i = sum over j of factors[i, j] · squares[j]
    for i in reversed(range(levels)):
        rows = np.flatnonzero(known[:, i])
        own = np.zeros((len(rows), levels))
        own[:, i] = 1.0
        for j in range(i + 1, levels):
            own -= moments.expected[rows, i, j, None] * factors[rows, j]
        factors[rows, i] = own / moments.expected[rows, i, i, None]
    raw, low, high = (np.full((count, levels), np.nan) for _ in range(3))
    degrees = moments.degrees if interval_degrees is None else interval_degrees
    for i in range(levels):
        rows = np.flatnonzero(known[:, i])
        terms = factors[rows, i] * moments.squares[rows]
        plus, minus = np.where(terms > 0, terms, 0.0), np.where(terms < 0, -terms, 0.0)
        raw[rows, i] = terms.sum(axis=1)
        low[rows, i], high[rows, i] = difference_interval(
            plus.sum(axis=1), _together(plus, degrees[rows]), minus.sum(axis=1), _together(minus, degrees[rows])
        )
    return VarianceEstimates(raw=raw, low=low, high=high)


def _together(parts: Array, degrees: Array) -> Array:
    """Approximate the degrees of freedom of a sum of mean squares (Satterthwaite, 1946); 1 for an empty sum."""
    total = parts.sum(axis=1)
    spread = np.where(parts > 0, parts**2 / np.maximum(degrees, 1.0), 0.0).sum(axis=1)
    return np.where(total > 0, total**2 / np.where(spread > 0, spread, 1.0), 1.0)


def difference_interval(plus: Array, plus_degrees: Array, minus: Array, minus_degrees: Array) -> tuple[Array, Array]:
    """Compute two-sided bounds, not below 0, of the expectation of ``plus − minus``, two independent scaled χ².

    The modified large-sample interval (Ting, Burdick, Graybill, Jeyaratnam and Lu, *Confidence intervals on linear
    combinations of variance components that are unrestricted in sign*, J. Stat. Comput. Simul. 35, 1990) holds its
    level for differences, where Satterthwaite's interval does not. With ``minus`` 0 it is the exact χ² interval.
    """
    alpha = (1 - LEVEL) / 2
    tenths = [np.round(np.minimum(degrees, 1e8) * 10).astype(np.int64) for degrees in (plus_degrees, minus_degrees)]
    # Quantiles are slow: compute them once per distinct pair of degrees, rounded to tenths.
    distinct, where = np.unique((tenths[0] << 31) + tenths[1], return_inverse=True)
    constants = _interval_constants((distinct >> 31) / 10, (distinct & (2**31 - 1)) / 10, alpha)
    g1, h1, g2, h2, g12, h12 = (constant[where] for constant in constants)
    value = plus - minus
    below = g1**2 * plus**2 + h2**2 * minus**2 + g12 * plus * minus
    above = h1**2 * plus**2 + g2**2 * minus**2 + h12 * plus * minus
    low, high = value - np.sqrt(np.maximum(below, 0.0)), value + np.sqrt(np.maximum(above, 0.0))
    return np.maximum(low, 0.0), np.maximum(high, 0.0)


def _interval_constants(first: Array, second: Array, alpha: float) -> tuple[Array, ...]:
    """Compute the six constants of the interval, under the names of Ting et al."""
    from scipy.special import chdtri, fdtri  # type: ignore[import-untyped]  # noqa: PLC0415  # no types; loads for 0.2 s

    def chi(degrees: Array, upper: float) -> Array:
        return np.asarray(chdtri(degrees, upper) / degrees)

    first, second = np.maximum(first, 0.1), np.maximum(second, 0.1)
    g1, h1 = 1 - 1 / chi(first, alpha), 1 / chi(first, 1 - alpha) - 1
    g2, h2 = 1 - 1 / chi(second, alpha), 1 / chi(second, 1 - alpha) - 1
    upper, lower = fdtri(first, second, 1 - alpha), fdtri(first, second, alpha)
    g12 = ((upper - 1) ** 2 - g1**2 * upper**2 - h2**2) / upper
    h12 = ((1 - lower) ** 2 - h1**2 * lower**2 - g2**2) / lower
    return g1, h1, g2, h2, np.asarray(g12), np.asarray(h12)


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedLevels:
    """Three levels above the values, as columns; each group of a level lies in one group of the level above."""

    top: tuple[str, ...]
    middle: tuple[str, ...]
    low: tuple[str, ...]
    """Columns that, with those of the levels above, make a level's groups."""
    middle_effect: tuple[str, ...]
    low_effect: tuple[str, ...]
    """Columns that identify an effect: groups that agree in them share it, in any group of the levels above."""


SQUARES = ("squares_0", "squares_1", "squares_2", "squares_3")
DEGREES = ("degrees_0", "degrees_1", "degrees_2", "degrees_3")
EFFECTS = ("effects_1", "effects_2")
"""Number of distinct effects of the middle and low level, which may be fewer than groups."""
EXPECTED = tuple(f"expected_{i}{j}" for i in range(4) for j in range(i, 4))


def sums_of_squares(groups: pl.DataFrame, key: Sequence[str], chain: NestedLevels) -> pl.DataFrame:
    """Compute the sums of squares of every data set from the moments of its finest groups.

    Args:
        groups: One row per ``key`` and group of ``chain.low``: ``n`` values, their ``mean``, and ``within``, the sum of
            their squares around it.
        key: Columns that name a data set.
        chain: The levels.

    Returns:
        Per ``key`` the columns :data:`SQUARES`, :data:`DEGREES` and :data:`EXPECTED`, which may be added over data
        sets and whose last level is the values themselves; :data:`EFFECTS`; and the number of ``values``.
    """
    key = list(key)
    each = groups.lazy().select(
        *key, "n", middle="mean", degrees_3=pl.col("n") - 1, squares_3="within", parts=pl.lit(1, pl.UInt32)
    )
    middle = (pl.col("n") * pl.col("middle")).sum() / pl.col("n").sum()
    added = pl.col("n", "degrees_3", "squares_3", "parts").sum()
    whole = aggregate(each, key, added, middle.alias("middle")).collect()
    # Most data sets have one group: all sums of the levels above are then 0.
    several = groups.join(whole.filter(pl.col("parts") > 1).select(*key, "middle"), on=key, nulls_equal=True)
    several = several.with_columns(pl.col("mean") - pl.col("middle"))  # centred, to avoid cancellation
    one, two = [*chain.top], [*chain.top, *chain.middle]
    three = [*two, *chain.low]
    found = [_level(several, key, columns, number) for number, columns in enumerate((one, two, three), start=1)]
    shares = {
        "k_0a": ([], one),
        "k_0b": ([], chain.middle_effect),
        "k_0c": ([], chain.low_effect),
        "k_1b": (one, chain.middle_effect),
        "k_1c": (one, chain.low_effect),
        "k_2c": (two, chain.low_effect),
    }
    found += [_share(several, key, outer, inner, name) for name, (outer, inner) in shares.items()]
    for name, columns in zip(EFFECTS, (chain.middle_effect, chain.low_effect), strict=True):
        effects = several.select(*key, *columns).unique()
        found.append(effects.group_by(key).agg(pl.len().alias(name)))
    joined = whole.filter(pl.col("parts") > 1)
    for table in found:
        joined = joined.join(table, on=key, how="left", nulls_equal=True)
    together = pl.concat([whole.filter(pl.col("parts") == 1), joined], how="diagonal")
    sums = (expression.cast(pl.Float64).alias(name) for name, expression in _columns().items())
    return together.select(*key, *sums, pl.col("n").cast(pl.Int32).alias("values"))


def _level(groups: pl.DataFrame, key: list[str], columns: list[str], number: int) -> pl.DataFrame:
    """Count a level's groups, and sum their squared means weighted by their numbers of values."""
    total = (pl.col("n") * pl.col("mean")).sum()
    merged = groups.group_by(*key, *columns).agg(square=total**2 / pl.col("n").sum())
    return merged.group_by(key).agg(
        pl.len().alias(f"groups_{number}"),
        pl.col("square").sum().alias(f"sum_{number}"),
    )


def _share(groups: pl.DataFrame, key: list[str], outer: Sequence[str], inner: Sequence[str], name: str) -> pl.DataFrame:
    """Compute Σ over outer groups of (Σ n² of its effects ÷ its n): the factor of the effects' variance in the sum."""
    together = [*outer, *(column for column in inner if column not in outer)]
    effects = groups.group_by(*key, *together).agg(pl.col("n").sum())
    within = (pl.col("n").cast(pl.Float64) ** 2).sum() / pl.col("n").sum()
    return effects.group_by(*key, *outer).agg(share=within).group_by(key).agg(pl.col("share").sum().alias(name))


def _columns() -> dict[str, pl.Expr]:
    """Make the columns of squares, degrees and expectations; level 0 is the chain's top, level 3 the values."""
    n = pl.col("n").cast(pl.Float64)
    groups = [pl.lit(1.0), *(pl.col(f"groups_{number}").fill_null(1).cast(pl.Float64) for number in (1, 2, 3))]
    sums = [pl.lit(0.0), *(pl.col(f"sum_{number}").fill_null(0.0) for number in (1, 2, 3))]
    degrees = [groups[i + 1] - groups[i] for i in range(3)]
    share = {name: pl.col(name).fill_null(n) for name in ("k_0a", "k_0b", "k_0c", "k_1b", "k_1c", "k_2c")}
    expected = {
        "expected_00": n - share["k_0a"],
        "expected_01": share["k_1b"] - share["k_0b"],
        "expected_02": share["k_1c"] - share["k_0c"],
        "expected_03": degrees[0],
        "expected_11": n - share["k_1b"],
        "expected_12": share["k_2c"] - share["k_1c"],
        "expected_13": degrees[1],
        "expected_22": n - share["k_2c"],
        "expected_23": degrees[2],
        "expected_33": pl.col("degrees_3"),
    }
    return {
        **{f"squares_{i}": (sums[i + 1] - sums[i]).clip(lower_bound=0.0) for i in range(3)},
        "squares_3": pl.col("squares_3"),
        **{f"degrees_{i}": degrees[i] for i in range(3)},
        "degrees_3": pl.col("degrees_3"),
        **expected,
        **{name: pl.col(name).fill_null(1) for name in EFFECTS},
    }


def interval_degrees(table: pl.DataFrame) -> Array:
    """Compute degrees of freedom for intervals: crossed effects are fewer than groups, and limit the degrees."""
    degrees = stacked(table, DEGREES)
    for number, name in enumerate(EFFECTS, start=1):
        degrees[:, number] = np.minimum(degrees[:, number], np.maximum(numbers(table, name) - 1, 0.0))
    return degrees


def moments_of(table: pl.DataFrame) -> SumsOfSquares:
    """Convert the columns of :func:`sums_of_squares` to arrays."""
    expected = np.zeros((table.height, 4, 4))
    for name in EXPECTED:
        expected[:, int(name[-2]), int(name[-1])] = numbers(table, name)
    return SumsOfSquares(squares=stacked(table, SQUARES), degrees=stacked(table, DEGREES), expected=expected)


def numbers(table: pl.DataFrame, name: str) -> Array:
    """Convert a column of sums to an array, with 0 for null."""
    return np.asarray(table[name].cast(pl.Float64).fill_null(0.0).to_numpy(), dtype=np.float64)


def stacked(table: pl.DataFrame, names: Sequence[str]) -> Array:
    """Convert columns of sums to the columns of an array."""
    return np.stack([numbers(table, name) for name in names], axis=1)
