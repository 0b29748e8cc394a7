"""Differences between two sets of sessions for many cells at once, on the scale of logarithms, as numpy arrays.

The unit of inference is the session. Each cell has few of them, and a page has many cells: five sessions a side leave
Welch's test so few degrees of freedom that, after Benjamini and Hochberg over 500 cells, a lone 2 % is found in 57 of
100 cases although the noise is 0.3 %. So each cell's variance is steadied by those of all others on the page (Smyth,
*Linear models and empirical Bayes methods for assessing differential expression*, Stat. Appl. Genet. Mol. Biol. 3:3,
2004): a weighted mean of its own and the common one, with weights that the page itself shows. Where cells differ in
noise the weight of the common one goes to nothing, and a cell much noisier than the others is judged by its own
sessions alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from scipy import special  # type: ignore[import-untyped]  # has no types

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

LEAST_DEVIATION = 1e-4
"""Sessions are never taken to repeat better than this share: equal medians are the work of a clock's tick."""
FEWEST_TO_STEADY = 20
"""With fewer cells than this, how much their noise differs is not known, and each is judged by its own."""
_OUT_OF_LINE = 0.01
"""A cell whose variance is this unlikely among the others is not one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMoments:
    """Of the logarithms of one value per session, for every cell."""

    count: Array
    mean: Array
    variance: Array
    """Unbiased; of two sessions or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDifferences:
    """Estimated differences of logarithms, new less base, for every cell."""

    effect: Array
    variance: Array
    """Of one session's difference."""
    weight: Array
    """``variance`` × this is the effect's."""
    degrees: Array

    @property
    def error(self) -> Array:
        """Standard error of the effect."""
        found: Array = np.sqrt(self.variance * self.weight)
        return found

    def p_values(self) -> Array:
        """Two-sided, of no difference at all."""
        found: Array = 2 * special.stdtr(self.degrees, -np.abs(self.effect) / self.error)
        return found

    def reach(self, level: float) -> Array:
        """Half-width of the two-sided interval at ``level``."""
        found: Array = special.stdtrit(self.degrees, (1 + level) / 2) * self.error
        return found

    def equivalent(self, margin: float) -> Mask:
        """Two one-sided tests at 5 % each (Schuirmann 1987): the interval at 90 % lies within the margin."""
        within: Mask = np.abs(self.effect) + self.reach(0.9) <= np.log1p(margin)
        return within


def welch(base: LogMoments, new: LogMoments) -> LogDifferences:
    """Unequal variances, with Satterthwaite's degrees of freedom (Welch, Biometrika 34, 1947); two sessions a side."""
    least = LEAST_DEVIATION**2
    of_base, of_new = (np.maximum(side.variance, least) / side.count for side in (base, new))
    squared = of_base + of_new
    degrees = squared**2 / (of_base**2 / (base.count - 1) + of_new**2 / (new.count - 1))
    weight = 1 / base.count + 1 / new.count
    return LogDifferences(effect=new.mean - base.mean, variance=squared / weight, weight=weight, degrees=degrees)


def paired(pairs: LogMoments) -> LogDifferences:
    """Student's test of differences that were taken pair by pair, two pairs or more."""
    return LogDifferences(
        effect=pairs.mean,
        variance=np.maximum(pairs.variance, LEAST_DEVIATION**2),
        weight=1 / pairs.count,
        degrees=pairs.count - 1,
    )


def steadied(found: LogDifferences) -> LogDifferences:
    """The same with each variance drawn towards that of all cells, as far as these show that they have one."""
    if found.effect.size < FEWEST_TO_STEADY:
        return found
    common, degrees = _common(found.variance, found.degrees)
    usual = _in_line(found, common, degrees)
    if FEWEST_TO_STEADY <= usual.sum() < usual.size:  # those out of line must not widen what is usual
        common, degrees = _common(found.variance[usual], found.degrees[usual])
        usual = _in_line(found, common, degrees)
    if np.isinf(degrees):
        variance, all_degrees = np.full_like(found.variance, common), np.full_like(found.degrees, 1e9)
    else:
        all_degrees = found.degrees + degrees
        variance = (found.degrees * found.variance + degrees * common) / all_degrees
    # No more degrees of freedom than all cells together have.
    all_degrees = np.minimum(all_degrees, found.degrees[usual].sum() if usual.any() else found.degrees)
    return replace(
        found,
        variance=np.where(usual, variance, found.variance),
        degrees=np.where(usual, all_degrees, found.degrees),
    )


def benjamini_hochberg(p: Array) -> Array:
    """Each p adjusted so that calling all up to q a discovery keeps false ones at q (J. R. Stat. Soc. B 57, 1995)."""
    order = np.argsort(p)
    stepped = p[order] * p.size / np.arange(1, p.size + 1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.minimum.accumulate(stepped[::-1])[::-1], 1)
    return adjusted


def _in_line(found: LogDifferences, common: float, degrees: float) -> Mask:
    """Which variances are no larger than chance makes those of cells with the common one."""
    ratio = found.variance / common
    chance = (
        special.chdtrc(found.degrees, found.degrees * ratio)
        if np.isinf(degrees)
        else special.fdtrc(found.degrees, degrees, ratio)
    )
    in_line: Mask = chance >= _OUT_OF_LINE
    return in_line


def _common(variance: Array, degrees: Array) -> tuple[float, float]:
    """The variance that all have in common and the degrees of freedom it is worth (Smyth 2004, section 6.2).

    Infinite degrees: the variances differ by no more than chance.
    """
    logs = np.log(variance) - special.digamma(degrees / 2) + np.log(degrees / 2)
    spread = logs.var(ddof=1) - special.polygamma(1, degrees / 2).mean()
    if spread <= 0:
        return float(np.exp(logs.mean())), np.inf
    half = _inverse_trigamma(float(spread))
    return float(np.exp(logs.mean() + special.digamma(half) - np.log(half))), 2 * half


def _inverse_trigamma(value: float) -> float:
    """The argument at which the trigamma function is ``value`` > 0, by Newton's method (Smyth 2004, appendix)."""
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
