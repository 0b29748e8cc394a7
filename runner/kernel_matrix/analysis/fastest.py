"""The fastest of several implementations whose times are noisy, corrected for the choice among them.

The least of many noisy times is too low: of 20 equal candidates by 1.9 standard errors. Here each candidate j is the
fastest with a weight q_j that falls with its time, and the best time is Σ q_j y_j plus what the choice makes of noise,
Σ σ_j² q_j (1 − q_j) / s. By Stein's identity (*Estimation of the mean of a multivariate normal distribution*, Annals of
Statistics 9, 1981) its expectation is that of Σ q_j θ_j, the true times of those chosen, as if one half of the sessions
chose and the other half gave the time. A candidate's distance to the best of the *others* has an error of its own,
since their estimate does not depend on the candidate's time.

The true times of those chosen are on average above the least true time, by up to 0.9 standard errors if candidates
differ by about the noise. So where the least true time is wanted (:data:`LEAST`), a part of the correction is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from kernel_matrix.analysis.standings import Places, Truths
from kernel_matrix.analysis.variance_prior import Array

SURE: Final = 1.5
"""Standard errors by which a candidate must be ahead of all others to be the fastest for sure."""
CHOSEN: Final = 1.0
"""Share of the correction for the true times of those chosen."""
LEAST: Final = 0.65
"""Share of the correction for the least true time: it is then between −0.5 and 0.5 standard errors off."""
_SOFTNESS: Final = 0.5
"""Scale of the weights in standard errors: smaller is noisier, larger takes slower candidates for the fastest."""
_SLOPE: Final = 1.5
"""Power of the slope in the variance: 2 is an upper bound (Poincaré's inequality), 0 ignores that weights change."""
_NOISIER: Final = 3.0
"""Standard errors of the likely fastest beyond which a candidate is much noisier."""
_DOUBTFUL: Final = 3.0
"""Standard errors of the best time by which a much noisier candidate may be faster, for the variance to be believed."""
_CONTENDERS: Final = 32
"""Fastest candidates of a group among which the best is sought."""
_LIKELY: Final = 1e-9
"""Weight below which a candidate has no part in the best time."""
_AT_ONCE: Final = 400_000
"""Values in memory together."""
_NONE: Final = 1e-24
"""Variance that stands for none, so that nothing is divided by 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fastest:
    """Best time of each group, and the distance of each candidate to the best of the others."""

    best: Array
    """Per group: logarithm of the best time; NaN for an empty group."""
    behind: Array
    """Per candidate: logarithm of its time ÷ the best of the others; below 0 for the fastest; NaN if it is alone."""
    variance: Array
    """Per candidate: variance of ``behind``; NaN where the noise of a time in its group is unknown."""
    degrees: Array
    """Per candidate: degrees of freedom of ``variance``."""
    doubtful: Truths
    """Per candidate: another one that is much noisier may be far faster, so that ``variance`` is too small."""


@dataclass(frozen=True, slots=True)
class NoisyTimes:
    """Times of candidates, with what is known of their noise."""

    log_ns: Array
    """Logarithm of each time; NaN for those that take no part."""
    variance: Array
    """Variance of each; NaN where it is unknown."""
    degrees: Array
    """Degrees of freedom of each variance."""


def fastest(
    times: NoisyTimes,
    group: Places,
    share: float = CHOSEN,
    *,
    of: Places | None = None,
    order: Places | None = None,
) -> Fastest:
    """Find the fastest of each group.

    Where the noise of a time is not known, the best time of its group is the least one.

    Args:
        times: The candidates' times.
        group: Number of each candidate's group, from 0.
        share: Share of the correction for the choice: :data:`CHOSEN` or :data:`LEAST`.
        of: A candidate of each group; the distances of others may be left out, as NaN. None: all distances are needed.
        order: The candidates by group and time, if that is known.
    """
    log_ns, groups = times.log_ns, int(group.max()) + 1 if group.size else 0
    per_candidate, per_group = np.full((4, log_ns.size), np.nan), np.full((4, groups), np.nan)
    order = np.lexsort((log_ns, group)) if order is None else order
    order = order[~np.isnan(log_ns[order])]
    start = np.flatnonzero(np.diff(group[order], prepend=-1))
    size = np.diff(start, append=order.size)
    if order.size:
        unknown = np.repeat(np.logical_or.reduceat(np.isnan(times.variance[order]), start), size)
        variance = np.where(unknown, 0.0, times.variance[order])  # without noise, the least time is the best
        degrees = np.where(unknown, np.inf, times.degrees[order])
        for some, count in _alike(np.minimum(size, _CONTENDERS)):
            places = start[some, None] + np.arange(count)
            rows, first = order[places], order[start[some]]
            relative = log_ns[rows] - log_ns[first, None]
            one = _Contenders(relative, variance[places], degrees[places], share)
            per_group[:, group[first]] = one.best
            per_group[0, group[first]] += log_ns[first]
            wanted = range(count) if of is None else (np.argmax(rows == of[group[first], None], axis=1),)
            for columns in wanted:
                per_candidate[:, rows[np.arange(len(rows)), columns]] = one.distance(columns)
        late = np.arange(order.size) - np.repeat(start, size) >= _CONTENDERS
        rows, best = order[late], per_group[:, group[order[late]]]
        per_candidate[:, rows] = _distance(log_ns[rows], variance[late], degrees[late], best)
        per_candidate[:, order[np.repeat(size == 1, size)]] = np.nan
        per_candidate[1:, order[unknown]] = np.nan
    behind, of_behind, its_degrees, doubtful = per_candidate
    return Fastest(best=per_group[0], behind=behind, variance=of_behind, degrees=its_degrees, doubtful=doubtful > 0)


def _alike(size: Places) -> Iterator[tuple[Places, int]]:
    """Yield the numbers of groups of equal size, in parts that fit into memory, with their size."""
    for count in np.unique(size):
        alike, step = np.flatnonzero(size == count), max(1, _AT_ONCE // int(count))
        for at in range(0, alike.size, step):
            yield alike[at : at + step], int(count)


def _distance(time: Array, variance: Array, degrees: Array, best: Array) -> Array:
    """Compute the distance of times to independent best ones; its variance, degrees of freedom, and if it is doubtful.

    Args:
        time: Logarithms of times.
        variance: Their variances.
        degrees: Degrees of freedom of the variances.
        best: The best times, their variances, the squares of the parts of these ÷ their degrees of freedom, and whether
            they are doubtful.
    """
    total = variance + best[1]
    with np.errstate(divide="ignore", invalid="ignore"):  # Satterthwaite's approximation
        return np.stack([time - best[0], total, total**2 / (variance**2 / degrees + best[2]), best[3]])


class _Contenders:
    """The fastest candidates of groups of one size; arrays of the shape (groups, candidates)."""

    def __init__(self, time: Array, variance: Array, degrees: Array, share: float) -> None:
        """Prepare them; ``time`` are logarithms, relative to the least of the group and ascending."""
        self._time, self._variance, self._degrees, self._share = time, variance, degrees, share
        self._noise = variance * _few(degrees)
        self._scale = _scale(time, self._noise)
        # E exp(−y/s) = exp(−θ/s + σ²/2s²): without the second term, noisy candidates would be taken for fast ones.
        self._scores = -time / self._scale - self._noise / (2 * self._scale**2)
        self._weights, self.best = self._best(self._scores)

    def distance(self, columns: Places | int) -> Array:
        """Compute the distance of one candidate of each group to the best of the others, as in :func:`_distance`."""
        at, best = np.arange(len(self._time)), self.best
        if self._time.shape[1] > 1 and self._weights[at, columns].max() > _LIKELY:
            others = self._scores.copy()
            others[at, columns] = -np.inf
            _, best = self._best(others)
        time, variance, degrees = (each[at, columns] for each in (self._time, self._variance, self._degrees))
        return _distance(time, variance, degrees, best)

    def _best(self, scores: Array) -> tuple[Array, Array]:
        """Return the weights, and the best time as in :func:`_distance`; −∞ is the score of one that is left out."""
        q, noise, scale = _weights(scores), self._noise, self._scale
        mean = (q * self._time).sum(axis=1, keepdims=True)
        best = mean[:, 0] + self._share * (noise * q * (1 - q) / scale).sum(axis=1)
        changes = noise * (1 - 2 * q)
        changes -= (q * changes).sum(axis=1, keepdims=True)
        slope = 1 - (self._time - mean) / scale - self._share * changes / scale**2
        parts = noise * q**2 * np.abs(slope) ** _SLOPE
        total = parts.sum(axis=1)
        noisy = (noise > (_NOISIER * scale / _SOFTNESS) ** 2) & ~np.isneginf(scores)
        faster = best - np.where(noisy, self._time - np.sqrt(noise), np.inf).min(axis=1)
        doubtful = faster > _DOUBTFUL * np.sqrt(total)
        return q, np.stack([best, total, (parts**2 / self._degrees).sum(axis=1), doubtful])


def _few(degrees: Array) -> Array:
    """Compute how much larger a variance with few degrees of freedom may be: the variance of Student's t."""
    bounded = np.clip(degrees, 3.0, 1e12)
    larger: Array = bounded / (bounded - 2)
    return larger


def _scale(time: Array, noise: Array) -> Array:
    """Compute the scale of the weights from the standard errors of those that may be the fastest."""
    usual = np.maximum(noise.mean(axis=1, keepdims=True), _NONE)
    likely = _weights(-time / np.sqrt(usual) - noise / (2 * usual))
    scale: Array = _SOFTNESS * np.sqrt(np.maximum((likely * noise).sum(axis=1, keepdims=True), _NONE))
    return scale


def _weights(scores: Array) -> Array:
    """Scale exponentials to a sum of 1 along the rows."""
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights: Array = raised / raised.sum(axis=1, keepdims=True)
    return weights
