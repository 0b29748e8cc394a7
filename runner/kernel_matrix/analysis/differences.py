"""Differences between two sets of sessions for many cells at once, on the scale of logarithms, as numpy arrays.

The unit of inference is the session. Each cell has few of them, and a comparison has many cells: with five sessions a
side, Welch's test has so few degrees of freedom that, after Benjamini and Hochberg over 500 cells, a single difference
of 2 % is found in 57 of 100 cases although the noise is 0.3 %. So each cell's variance is moderated by those of all
others (Smyth, *Linear models and empirical Bayes methods for assessing differential expression*, Stat. Appl. Genet.
Mol. Biol. 3:3, 2004): a weighted mean of its own and the common variance, with weights estimated from all cells. The
more cells differ in noise, the smaller the weight of the common variance. A cell much noisier than the others is judged
by its own sessions alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from scipy import special  # type: ignore[import-untyped]

from kernel_matrix.measure.intervals import t_quantile

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

LEAST_DEVIATION = 1e-4
"""Smallest standard deviation between sessions, as a share: equal medians only show that the clock's tick is coarse."""
FEWEST_TO_MODERATE = 20
"""Cells needed to estimate how much their noise differs; with fewer, variances are not moderated."""
_OUTLIER = 0.01
"""A cell whose variance has at most this probability among the others is an outlier and is not moderated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMoments:
    """Moments of the logarithms of one value per session, for every cell."""

    count: Array
    mean: Array
    variance: Array
    """Unbiased variance; needs two sessions or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDifferences:
    """Estimated differences of logarithms, new − base, for every cell."""

    effect: Array
    variance: Array
    """Variance of one session's difference."""
    weight: Array
    """Variance of the effect ÷ ``variance``."""
    degrees: Array

    @property
    def error(self) -> Array:
        """Standard error of the effect."""
        found: Array = np.sqrt(self.variance * self.weight)
        return found

    def p_values(self) -> Array:
        """Compute two-sided p values of no difference."""
        found: Array = 2 * special.stdtr(self.degrees, -np.abs(self.effect) / self.error)
        return found

    def reach(self, level: float) -> Array:
        """Compute the half-width of the two-sided interval at ``level``."""
        found: Array = t_quantile(self.degrees, level) * self.error
        return found

    def equivalent(self, margin: float) -> Mask:
        """Test equivalence by two one-sided tests at 5 % (Schuirmann 1987): the 90 % interval is within the margin."""
        within: Mask = np.abs(self.effect) + self.reach(0.9) <= np.log1p(margin)
        return within


def welch(base: LogMoments, new: LogMoments) -> LogDifferences:
    """Estimate differences with unequal variances (Welch, Biometrika 34, 1947), from two or more sessions a side."""
    least = LEAST_DEVIATION**2
    of_base, of_new = (np.maximum(side.variance, least) / side.count for side in (base, new))
    squared = of_base + of_new
    degrees = squared**2 / (of_base**2 / (base.count - 1) + of_new**2 / (new.count - 1))
    weight = 1 / base.count + 1 / new.count
    return LogDifferences(effect=new.mean - base.mean, variance=squared / weight, weight=weight, degrees=degrees)


def paired(pairs: LogMoments) -> LogDifferences:
    """Estimate differences from two or more pairs of sessions (Student's paired test)."""
    return LogDifferences(
        effect=pairs.mean,
        variance=np.maximum(pairs.variance, LEAST_DEVIATION**2),
        weight=1 / pairs.count,
        degrees=pairs.count - 1,
    )


def moderate(found: LogDifferences) -> LogDifferences:
    """Shrink each variance towards the common variance of all cells."""
    if found.effect.size < FEWEST_TO_MODERATE:
        return found
    common, degrees = _common(found.variance, found.degrees)
    usual = _usual(found, common, degrees)
    if FEWEST_TO_MODERATE <= usual.sum() < usual.size:  # outliers must not raise the common variance
        common, degrees = _common(found.variance[usual], found.degrees[usual])
        usual = _usual(found, common, degrees)
    if np.isinf(degrees):
        variance, all_degrees = np.full_like(found.variance, common), np.full_like(found.degrees, 1e9)
    else:
        all_degrees = found.degrees + degrees
        variance = (found.degrees * found.variance + degrees * common) / all_degrees
    # All cells together bound the degrees of freedom.
    all_degrees = np.minimum(all_degrees, found.degrees[usual].sum() if usual.any() else found.degrees)
    return replace(
        found,
        variance=np.where(usual, variance, found.variance),
        degrees=np.where(usual, all_degrees, found.degrees),
    )


def benjamini_hochberg(p: Array) -> Array:
    """Adjust p values to false discovery rates (Benjamini and Hochberg, J. R. Stat. Soc. B 57, 1995)."""
    # scipy.stats.false_discovery_control gives the same, but importing scipy.stats takes seconds.
    order = np.argsort(p)
    stepped = p[order] * p.size / np.arange(1, p.size + 1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.minimum.accumulate(stepped[::-1])[::-1], 1)
    return adjusted


def _usual(found: LogDifferences, common: float, degrees: float) -> Mask:
    """Flag variances that are not unusually large under the common variance."""
    ratio = found.variance / common
    chance = (
        special.chdtrc(found.degrees, found.degrees * ratio)
        if np.isinf(degrees)
        else special.fdtrc(found.degrees, degrees, ratio)
    )
    usual: Mask = chance >= _OUTLIER
    return usual


def _common(variance: Array, degrees: Array) -> tuple[float, float]:
    """Estimate the common variance and its prior degrees of freedom (Smyth 2004, section 6.2).

    The degrees are infinite if the variances differ by no more than chance.
    """
    logs = np.log(variance) - special.digamma(degrees / 2) + np.log(degrees / 2)
    spread = logs.var(ddof=1) - special.polygamma(1, degrees / 2).mean()
    if spread <= 0:
        return float(np.exp(logs.mean())), np.inf
    half = _inverse_trigamma(float(spread))
    return float(np.exp(logs.mean() + special.digamma(half) - np.log(half))), 2 * half


def _inverse_trigamma(value: float) -> float:
    """Invert the trigamma function for ``value`` > 0 by Newton's method (Smyth 2004, appendix)."""
    if value > 1e7:
        return float(1 / np.sqrt(value))
    if value < 1e-6:
        return 1 / value
    at = 0.5 + 1 / value
    for _ in range(50):
        here = float(special.polygamma(1, at))
        step = here * (1 - here / value) / float(special.polygamma(2, at))
        at += step
        if -step / at < 1e-8:
            break
    return at
