"""Agreement of a measurement with a repetition of itself: the most that two GPUs with the same order can reach.

There is no repetition, but a time y with the standard error σ can be divided into two that are independent, y + σε and
y − σε with a standard normal ε, as if half of the sessions had been kept apart (Leiner, Duan, Wasserman and Ramdas,
*Data fission*, J. Am. Stat. Assoc. 2023). Each has twice the variance. With more noise added the agreement falls, and
from its values at 2, 3 and 4 times the variance it is extrapolated to that of the measurement (Cook and Stefanski,
*Simulation-extrapolation estimation*, J. Am. Stat. Assoc. 89, 1994).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from kernel_matrix.analysis.parallel import map_threads
from kernel_matrix.analysis.standings import Places, Truths
from kernel_matrix.analysis.variance_prior import Array

_EXTRAPOLATION: Final = {2: 4.2, 3: -5.7, 4: 2.5}
"""Multiple of the variance → its weight: for a pair at any distance, the mean error of the agreement is below 0.05."""
_GRID: Final = np.linspace(0.0, 9.0, 901)
"""Sizes of differences, in standard errors, at which the agreement is computed; it is linear between them."""
_CHANCE: Final = 0.01
"""Probability below which candidates are not taken for equal."""
_DRAWS: Final = (4, 100)
"""Fewest and most draws of repeated winners; between them, as many as :data:`_EFFORT` allows."""
_EFFORT: Final = 2_000_000
"""Drawn times in total, per multiple of the variance."""
_SEED: Final = 20_160_907
"""Fixed, so that the same tables give the same answer."""


def normal_size(t: Array, degrees: Array) -> Array:
    """Return the size of a normal variable that is as unlikely as a t statistic.

    Wallace, *Bounds on normal approximations to Student's and the chi-square distributions*, Ann. Math. Stat. 30, 1959.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.minimum(degrees, 1e8)
        size: Array = np.sqrt(finite * np.log1p(t**2 / finite)) * (8 * finite + 1) / (8 * finite + 3)
    return size


def repeated_agreement(size: Array) -> Array:
    """Estimate E[sign · sign of a repetition] of pairs whose difference has this size in standard errors; NaN for NaN.

    A single value means nothing, and lies outside −1 to 1 for some sizes: only means over many pairs do.
    """
    return np.interp(size, _GRID, _agreements())


@cache
def _agreements() -> Array:
    """Compute the estimate for each size of the grid."""
    from scipy.special import ndtr  # type: ignore[import-untyped]  # noqa: PLC0415  # no types; loads for 0.2 s

    nodes, weights = np.polynomial.hermite_e.hermegauss(81)
    found = np.zeros_like(_GRID)
    for multiple, share in _EXTRAPOLATION.items():
        if multiple == 2:
            found += share * (4 * ndtr(_GRID) - 3)
            continue
        added = np.sqrt(multiple - 2)
        one, two = (2 * ndtr((_GRID[:, None] + sign * nodes) / added) - 1 for sign in (1, -1))
        found += share * (one * two) @ weights / weights.sum()
    return found


def repeated_winners(log_ns: Array, variance: Array, start: Places, group: Places) -> Array:
    """Estimate per side and group the probability that a repetition has the same fastest candidate.

    A single value may lie outside 0 to 1; only means over groups and draws do not. NaN where the noise is unknown.

    Args:
        log_ns: Times, sides × candidates; NaN for candidates that take no part.
        variance: Variance of each; NaN where it is unknown.
        start: First row of each group, whose rows are contiguous.
        group: Group of each row.
    """
    if not start.size:
        return np.empty((len(log_ns), 0))
    noise = list(_divided(group.size))

    def winners(side: tuple[Array, Array]) -> Array:
        timed, unknown = (~np.isnan(side[0]), np.isnan(side[1]))
        known = ~np.logical_or.reduceat(timed & unknown, start) & np.logical_or.reduceat(timed, start)
        times, error = np.where(timed, side[0], np.inf), np.sqrt(np.where(unknown, 0.0, side[1]))
        found = np.zeros(start.size)
        for share, *halves in noise:
            one, two = (_least(times + error * half, start, group) for half in halves)
            found += share * np.logical_or.reduceat(one & two, start)
        return np.where(known, found, np.nan)

    return np.stack(map_threads(winners, zip(log_ns, variance, strict=True)))


def _divided(size: int) -> Iterator[tuple[float, Array, Array]]:
    """Draw the noise of both halves of divided times, with the weight that their agreement has."""
    dice, draws = np.random.default_rng(_SEED), int(np.clip(_EFFORT // size, *_DRAWS))
    for multiple, share in _EXTRAPOLATION.items():
        for _ in range(draws):
            divided, *added = dice.standard_normal((1 if multiple == 2 else 3, size))
            one, two = (sign * divided for sign in (1, -1))
            if added:
                one, two = (each + np.sqrt(multiple - 2) * more for each, more in zip((one, two), added, strict=True))
            yield share / draws, one, two


def _least(times: Array, start: Places, group: Places) -> Truths:
    """Flag the least time of each group."""
    flags: Truths = times == np.minimum.reduceat(times, start)[group]
    return flags


@dataclass(frozen=True, slots=True)
class Differences:
    """Differences between the candidates of each group, in units of their noise."""

    squares: Array
    """Sum of squares around the group's mean, weighted by the inverse of variances."""
    between: Array
    """Its degrees of freedom; 0 where the noise is unknown."""
    degrees: float
    """Degrees of freedom of a usual variance."""

    def tested(self, groups: Places) -> bool:
        """Return True if the noise is known in any of the groups."""
        return bool(self.between[groups].sum() > 0)

    def shown(self, groups: Places) -> bool:
        """Return True if the candidates of ``groups`` differ by more than noise (F test)."""
        from scipy.special import fdtrc  # noqa: PLC0415  # loads for 0.2 s

        between = float(self.between[groups].sum())
        if not between:
            return False
        ratio = float(self.squares[groups].sum()) / between
        return bool(fdtrc(between, min(self.degrees, 1e8), ratio) < _CHANCE)


def differences(log_ns: Array, variance: Array, degrees: Array, group: Places) -> Differences:
    """Compute how far the candidates of each group differ; NaN as in :func:`repeated_winners`."""
    groups = int(group.max()) + 1 if group.size else 0
    known = ~np.isnan(log_ns) & ~np.isnan(variance)
    where, weight = group[known], 1 / variance[known]

    def total(values: Array) -> Array:
        return np.bincount(where, weights=values, minlength=groups).astype(np.float64)

    with np.errstate(invalid="ignore"):
        middle = total(weight * log_ns[known]) / total(weight)
    squares = total(weight * (log_ns[known] - middle[where]) ** 2)
    between = np.maximum(total(np.ones(where.size)) - 1, 0.0)
    usual = float(np.median(degrees[known])) if known.any() else np.inf
    return Differences(squares, between, usual)
