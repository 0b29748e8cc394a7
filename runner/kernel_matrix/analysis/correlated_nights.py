"""Likelihood of a level, a step or a line in nights that are correlated with their neighbours.

The noise of a series is taken as first-order autoregressive with a correlation of its own, which thirty nights hardly
show: a series that wanders looks like one with a step. So each shape is judged over all correlations, weighted by how
usual they are in the set, and the chance of a ratio of likelihoods is that of noise with the set's correlations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernel_matrix.analysis.quantiles import NORMAL_MAD

Array = NDArray[np.float64]
Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

SIDE: Final = 5
"""Fewest nights on either side of a step: with 5 % stray nights, three of them in a row end one page in ten."""
CORRELATIONS: Final = np.array([-0.3, 0.0, 0.2, 0.4, 0.6, 0.75, 0.87, 0.95, 0.99])
"""Correlations of neighbouring nights that are tried."""
_INDEPENDENT: Final = 1
"""Place of no correlation in them."""
STEP: Final = 0
LINE: Final = 1
STEP_PENALTY: Final = 1.5
"""Logarithms of the number of nights by which a step or switch must raise the log likelihood to be likelier than none
(Zhang and Siegmund, *A modified Bayes information criterion*, Biometrics 63, 2007)."""

_UNSEEN: Final = 3.0
"""Series that the even distribution of correlations counts for beside those of the set."""
_DRAWN: Final = 1200
"""Series of noise that are drawn per correlation and number of nights."""
_SEED: Final = 20260301
"""Fixed, so that the same tables give the same answer."""
_TOP: Final = 0.05
"""Share of them, the largest, from which the tail is extrapolated."""
_SIZES: Final = (10, 12, 15, 20, 25, 30, 36, 43, 52, 62, 75, 100, 150, 250, 400)
"""Numbers of nights for which noise is drawn; the chance of others is that of the next higher one."""
_STAY: Final = 3
"""Nights in a row that make a state; fewer are stray."""
_FAR: Final = 3.0
"""Robust standard deviations from the nights around it to which a night is limited."""
_MOST_STRAYS: Final = 0.2
"""Share of the nights of a series that can be stray; to limit more would draw steps that are none."""
_LEAST: Final = 1e-12
"""Smallest share of the squares that is left by a shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeLikelihoods:
    """Logarithms of the largest likelihoods per piece and correlation, shape (m, correlations)."""

    level: Array
    step: Array
    line: Array
    splits: Places
    """Nights before the best step."""

    def ratios(self, weights: Array) -> Array:
        """Compute log likelihood ratios of a step and of a line to a level; shape (2, m)."""
        level = _mean(self.level, weights)
        return np.stack([_mean(self.step, weights) - level, _mean(self.line, weights) - level])

    def ratio_if_independent(self) -> Array:
        """Compute the log likelihood ratio of a step to a level if nights were independent."""
        return np.asarray(self.step[:, _INDEPENDENT] - self.level[:, _INDEPENDENT])

    def split(self, weights: Array) -> Places:
        """Return the nights before the best step at the likeliest correlation."""
        best = (self.step + np.log(weights)).argmax(axis=1)
        return np.asarray(np.take_along_axis(self.splits, best[:, None], axis=1)[:, 0])

    def inflation(self, shape: int, weights: Array) -> Array:
        """Estimate the factor by which correlation raises the variance of a mean of many nights, beside a shape."""
        found = (self.step, self.line)[shape] + np.log(weights)
        chance = np.exp(found - found.max(axis=1, keepdims=True))
        return np.asarray(chance @ ((1 + CORRELATIONS) / (1 - CORRELATIONS)) / chance.sum(axis=1))


def _mean(logs: Array, weights: Array) -> Array:
    most = logs.max(axis=1, keepdims=True)
    return np.asarray(most[:, 0] + np.log(np.exp(logs - most) @ weights))


@lru_cache(maxsize=64)
def _whitened(nights: int) -> tuple[tuple[Array, Array, Array, float], ...]:
    """Return per correlation the matrices that give the noise around the mean, and the parts of steps and a line.

    The last is the constant of the restricted likelihood (Patterson and Thompson, Biometrika 58, 1971), without which a
    mean that is estimated makes short series look less correlated than they are.
    """
    time = np.arange(nights, dtype=np.float64)
    steps = (time >= np.arange(SIDE, nights - SIDE + 1)[:, None]).astype(np.float64)
    shapes = np.vstack([steps, time])
    found = []
    for correlation in CORRELATIONS:
        white = np.eye(nights) - correlation * np.eye(nights, k=-1)
        white[0, 0] = np.sqrt(1 - correlation**2)
        one = white @ np.ones(nights)
        length = np.linalg.norm(one)
        one /= length
        noise = white - np.outer(one, one @ white)
        parts = shapes @ noise.T
        parts = (parts / np.linalg.norm(parts, axis=1, keepdims=True)) @ noise
        constant = float(np.log(white[0, 0]) - np.log(length))
        found.append((np.ascontiguousarray(noise.T), np.ascontiguousarray(parts[:-1].T), parts[-1], constant))
    return tuple(found)


def likelihoods(pieces: Array) -> ShapeLikelihoods:
    """Compute the likelihoods of the shapes for pieces of shape (m, nights)."""
    count, nights = pieces.shape
    centred = pieces - pieces.mean(axis=1, keepdims=True)
    flat = (centred**2).sum(axis=1) <= 1e-20
    level, step, line = (np.zeros((count, CORRELATIONS.size)) for _ in range(3))
    splits = np.full((count, CORRELATIONS.size), SIDE, dtype=np.int64)
    for place, (noise, steps, slope, constant) in enumerate(_whitened(nights)):
        squares = np.where(flat, 1.0, ((centred @ noise) ** 2).sum(axis=1))
        explained = (centred @ steps) ** 2
        splits[:, place] += explained.argmax(axis=1)
        most = {STEP: explained.max(axis=1), LINE: (centred @ slope) ** 2}
        level[:, place] = constant - (nights - 1) / 2 * np.log(squares)
        for shape, of in ((STEP, step), (LINE, line)):
            left = np.where(flat, 1.0, np.maximum(squares - most[shape], _LEAST * squares))
            of[:, place] = constant - (nights - 1) / 2 * np.log(left)
    return ShapeLikelihoods(level=level, step=step, line=line, splits=splits)


def usual_correlations(shapes: Sequence[ShapeLikelihoods], nights: Sequence[int]) -> Array:
    """Estimate how usual each correlation is, from all series of a set, of which each may have a step.

    Args:
        shapes: Likelihoods of series of equally many nights.
        nights: Their nights.
    """
    size = CORRELATIONS.size
    evidence = [
        np.concatenate([one.level, one.step - STEP_PENALTY * np.log(many)], axis=1)
        for one, many in zip(shapes, nights, strict=True)
    ]
    each = np.concatenate([np.zeros((0, 2 * size)), *evidence])
    chances = np.exp(each - each.max(axis=1, keepdims=True, initial=-np.inf))
    weights = np.full(2 * size, 1 / (2 * size))
    for _ in range(60):
        belongs = chances * weights
        belongs /= belongs.sum(axis=1, keepdims=True)
        weights = (belongs.sum(axis=0) + _UNSEEN / (2 * size)) / (len(each) + _UNSEEN)
    return np.asarray(weights[:size] + weights[size:])


@dataclass(frozen=True, slots=True, kw_only=True)
class ChanceRatios:
    """Chance of a ratio of likelihoods in noise of a set's correlations, per shape and correlation."""

    weights: Array
    tops: Array
    """Ratio that a share :data:`_TOP` of noise exceeds; shape (2, correlations)."""
    excess: Array
    """Mean excess beyond it; shape (2, correlations)."""

    def chance(self, shape: int, ratios: Array) -> Array:
        """Compute the probability that noise has such a ratio or a larger one."""
        return np.asarray(self._beyond(shape, ratios) @ self.weights)

    def if_independent(self, shape: int, ratios: Array) -> Array:
        """Compute the same for independent nights."""
        return np.asarray(self._beyond(shape, ratios)[:, _INDEPENDENT])

    def _beyond(self, shape: int, ratios: Array) -> Array:
        beyond = np.maximum((ratios[:, None] - self.tops[shape]) / self.excess[shape], -5.0)
        return np.asarray(np.minimum(_TOP * np.exp(-beyond), 1.0))


def chance_ratios(nights: int, weights: Array) -> ChanceRatios:
    """Compute the ratios of likelihoods of drawn noise of each correlation."""
    return _chance_ratios(min((one for one in _SIZES if one >= nights), default=_SIZES[-1]), tuple(weights))


@lru_cache(maxsize=len(_SIZES))
def _chance_ratios(size: int, usual: tuple[float, ...]) -> ChanceRatios:
    weights = np.array(usual)
    ratios = _drawn(size).ratios(weights)
    most = np.sort(ratios.reshape(2, CORRELATIONS.size, _DRAWN), axis=2)[:, :, -int(_TOP * _DRAWN) :]
    tops = most[:, :, 0]
    excess = np.mean(most - tops[:, :, None], axis=2)
    around = np.pad(excess, ((0, 0), (1, 1)), mode="edge")
    smooth = (around[:, :-2] + 2 * excess + around[:, 2:]) / 4  # of neighbouring correlations, to be less rough
    return ChanceRatios(weights=weights, tops=tops, excess=smooth)


@lru_cache(maxsize=len(_SIZES))
def _drawn(nights: int) -> ShapeLikelihoods:
    """Draw series of autoregressive noise with variance 1, :data:`_DRAWN` of each correlation."""
    found = np.random.default_rng(_SEED).normal(size=(CORRELATIONS.size, _DRAWN, nights))
    fresh = np.sqrt(1 - CORRELATIONS**2)[:, None]
    for night in range(1, nights):
        found[:, :, night] = CORRELATIONS[:, None] * found[:, :, night - 1] + fresh * found[:, :, night]
    return likelihoods(found.reshape(-1, nights))


def without_strays(pieces: Array) -> Array:
    """Limit nights that are far from the median of the nights around them, of shape (m, nights).

    Series in which more than :data:`_MOST_STRAYS` would be limited stay as they are: these have two states.
    """
    nights = pieces.shape[1]
    around = min(2 * SIDE + 1, nights)
    windows = np.median(np.lib.stride_tricks.sliding_window_view(pieces, around, axis=1), axis=2)
    # At the ends the window does not go on: two stray nights there must not be its middle.
    middle = windows[:, np.clip(np.arange(nights) - SIDE, 0, nights - around)]
    usual = NORMAL_MAD * np.median(np.abs(pieces - middle), axis=1, keepdims=True)
    stray = (np.abs(pieces - middle) > _FAR * usual).mean(axis=1, keepdims=True)
    limit = np.where((usual > 0) & (stray <= _MOST_STRAYS), _FAR * usual, np.inf)
    return np.asarray(np.clip(pieces, middle - limit, middle + limit))


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoStates:
    """Series that go back and forth between two levels."""

    returning: Mask
    """True where a series left a level and came back to it."""
    apart: Array
    """Distance of the two levels."""


def two_states(pieces: Array) -> TwoStates:
    """Find series (m, nights) that two levels, between which they switch, explain better than a step does.

    The states are found by the Viterbi algorithm, with :data:`STEP_PENALTY` per switch. Stays in one state must agree
    in their means, and each state must have a stay of three nights: stray nights are no state.
    """
    nights = pieces.shape[1]
    penalty = STEP_PENALTY * np.log(nights)
    centred = pieces - pieces.mean(axis=1, keepdims=True)
    total = np.maximum((centred**2).sum(axis=1), 1e-20)
    high = _upper_half(centred)
    for _ in range(3):
        levels, squares = _levels(centred, high)
        variance = np.maximum(squares / nights, total * 1e-9)
        high = _likeliest(centred, levels, 2 * penalty * variance)
    levels, squares = _levels(centred, high)
    change = high[:, 1:] != high[:, :-1]
    switches = change.sum(axis=1)
    stay = np.cumsum(np.pad(change, ((0, 0), (1, 0))), axis=1)
    own, steady = _stays(centred, high, stay)
    states_gain = nights / 2 * np.log(total / np.maximum(squares, _LEAST * total)) - penalty * switches
    step_left = np.maximum(total - _most_by_step(centred), _LEAST * total)
    step_gain = nights / 2 * np.log(total / step_left) - penalty
    apart_gain = nights / 2 * np.log(np.maximum(squares, _LEAST * total) / np.maximum(own, _LEAST * total))
    returning = (switches >= 2) & steady & (states_gain > np.maximum(step_gain, 0.0) + 1)
    returning &= apart_gain <= np.log(nights) / 2 * np.maximum(switches - 1, 1) + 1
    return TwoStates(returning=returning, apart=levels[:, 1] - levels[:, 0])


def _upper_half(centred: Array) -> Mask:
    """Divide each series at the value that leaves the least squares around the means of both parts."""
    nights = centred.shape[1]
    ordered = np.sort(centred, axis=1)
    sums, count = np.cumsum(ordered, axis=1)[:, :-1], np.arange(1, nights)
    best = (sums**2 / (count * (nights - count))).argmax(axis=1)
    return np.asarray(centred > np.take_along_axis(ordered, best[:, None], axis=1))


def _levels(centred: Array, high: Mask) -> tuple[Array, Array]:
    """Return the means of both states (m, 2), and the squares that they leave."""
    many = high.sum(axis=1)
    sums = (centred * high).sum(axis=1)
    up = sums / np.maximum(many, 1)
    down = -sums / np.maximum(centred.shape[1] - many, 1)
    squares = ((centred - np.where(high, up[:, None], down[:, None])) ** 2).sum(axis=1)
    return np.stack([down, up], axis=1), squares


def _likeliest(centred: Array, levels: Array, cost: Array) -> Mask:
    """Return the states with the least squares, if a switch costs ``cost``."""
    away = (centred[:, :, None] - levels[:, None, :]) ** 2
    spent = away[:, 0]
    came = np.zeros(away.shape, dtype=np.bool_)  # True: from the other state
    for night in range(1, away.shape[1]):
        other = spent[:, ::-1] + cost[:, None]
        came[:, night] = other < spent
        spent = np.minimum(spent, other) + away[:, night]
    state = spent[:, 1] < spent[:, 0]
    found = np.zeros(centred.shape, dtype=np.bool_)
    for night in reversed(range(away.shape[1])):
        found[:, night] = state
        state = state ^ np.where(state, came[:, night, 1], came[:, night, 0])
    return found


def _stays(centred: Array, high: Mask, stay: Places) -> tuple[Array, Mask]:
    """Return the squares around the mean of each stay, and whether each state has a stay of enough nights."""
    count, nights = centred.shape
    place = (np.arange(count)[:, None] * nights + stay).ravel()
    size = np.bincount(place, minlength=count * nights)
    sums = np.bincount(place, weights=centred.ravel(), minlength=count * nights)
    mean = sums / np.maximum(size, 1)
    squares = ((centred.ravel() - mean[place]) ** 2).reshape(count, nights).sum(axis=1)
    long = (size >= _STAY)[place].reshape(count, nights)
    return squares, (long & high).any(axis=1) & (long & ~high).any(axis=1)


def _most_by_step(centred: Array) -> Array:
    nights = centred.shape[1]
    before = np.arange(SIDE, nights - SIDE + 1)
    sums = np.cumsum(centred, axis=1)[:, SIDE - 1 : nights - SIDE]
    return np.asarray((sums**2 * (nights / (before * (nights - before)))).max(axis=1))
