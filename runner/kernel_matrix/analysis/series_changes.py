"""Steps and lines in many series of nights at once, on the scale of logarithms.

``values`` hold one stretch after the other, without gaps; ``starts`` and ``lengths`` locate the stretches in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from scipy.special import ndtr  # type: ignore[import-untyped]

from kernel_matrix.analysis.correlated_nights import (
    CORRELATIONS,
    LINE,
    STEP,
    Array,
    ChanceRatios,
    Mask,
    Places,
    chance_ratios,
    likelihoods,
    two_states,
    usual_correlations,
    without_strays,
)
from kernel_matrix.analysis.differences import benjamini_hochberg
from kernel_matrix.analysis.quantiles import normal_quantile
from kernel_matrix.measure.intervals import t_quantile

ERROR: Final = 0.01
"""False discovery rate of steps and slopes over all series (Benjamini and Hochberg, J. R. Stat. Soc. B 57, 1995)."""
FEWEST_NIGHTS: Final = 10
"""Nights of a piece that is searched for steps and slopes; fewer hardly tell them from correlated noise."""

_NEW_LEVEL: Final = 1.5
"""A step that is larger than this many distances of a stretch's two levels leads to a new level."""
_LARGER: Final = 1.25
"""A step that is larger than this many distances of the levels of other stretches is none of their kind."""
_FEWEST_RETURNING: Final = 3
_SHARE_RETURNING: Final = 0.01
"""Stretches, and share of all, that must go back and forth before others are suspected of it."""
_SHARE_BY_CHANCE: Final = 0.1
"""Stretches that go back and forth per step up to which steps count: about so many are the first half of a return."""
_AT_ONCE: Final = 8_000_000
"""Numbers held in memory while comparing splits or pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoints:
    """The steps found, and how they were tested."""

    stretches: Places
    """Number of the stretch of each step."""
    places: Places
    """Place in the values of the first night after each step."""
    p: Array
    """Probability that noise alone shows such a step anywhere in the piece it was found in."""
    q: Array
    """p adjusted for all pieces that were tested in its round."""
    inflation: Array
    """Factor by which correlation of nights raises the variance of a mean of many nights, in each step's piece."""
    tested: int
    """Stretches that were long enough."""
    noise: NightNoise
    """The noise of the series."""
    returning: Mask
    """For each stretch, True if it goes back and forth between two levels."""
    undecided: int
    """Stretches whose step would be found if their nights were independent."""
    masked: int
    """Steps that are no larger than those of stretches that returned, and too few beside these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightNoise:
    """Noise of the series of a set."""

    calm: Array
    """All values, with stray nights limited."""
    weights: Array
    """How usual each correlation of neighbouring nights is."""

    @property
    def correlation(self) -> float:
        """Mean correlation of neighbouring nights over all series."""
        return float(self.weights @ CORRELATIONS)

    def pieces(self, starts: Places, lengths: Places) -> Iterator[tuple[Places, Array]]:
        """Yield the pieces by length, in parts that fit into memory: their numbers, and their nights (m, nights)."""
        yield from _by_length(self.calm, starts, lengths)

    def chance(self, nights: int) -> ChanceRatios:
        """Return the chance of likelihood ratios of pieces of so many nights."""
        return chance_ratios(nights, self.weights)


def _by_length(values: Array, starts: Places, lengths: Places) -> Iterator[tuple[Places, Array]]:
    for nights in np.unique(lengths):
        rows = np.flatnonzero(lengths == nights)
        for some in np.array_split(rows, 1 + len(rows) * nights * 4 // _AT_ONCE):
            yield some, values[starts[some, None] + np.arange(nights)]


def find_changes(values: Array, starts: Places, lengths: Places) -> ChangePoints:
    """Find steps in the mean of each stretch by binary segmentation (Vostrikova, Soviet Mathematics Doklady 24, 1981).

    A piece is split where a step is likeliest, and tested by the ratio of likelihoods as in
    :mod:`kernel_matrix.analysis.correlated_nights`. A piece that a straight line explains better is slow drift, not a
    step. A short excursion within a long piece is found only if it is large, since a single split fits it badly. A step
    counts if its q is at most :data:`ERROR` over all pieces of its round: first all stretches, then both sides of every
    step (Yekutieli, *Hierarchical false discovery rate*, J. Am. Stat. Assoc. 103, 2008).

    A level that the stretch was at before is no step: stretches that go back and forth between two levels have none.
    One that has left its level for the first time looks like a step. So where several stretches go back and forth, a
    step no larger than theirs counts only if there are many more such steps.
    """
    enough = np.flatnonzero(lengths >= FEWEST_NIGHTS)
    noise, returning, apart = _noise(values, starts[enough], lengths[enough])
    stretch, begin, size = enough, starts[enough], lengths[enough]
    kept: list[tuple[Places, _Tested]] = []
    undecided = 0
    while len(stretch):
        tested = _test(noise, begin, size)
        q = benjamini_hochberg(tested.p)
        found = q <= ERROR
        if not kept:
            undecided = int(np.count_nonzero(~found & (benjamini_hochberg(tested.independent) <= ERROR)))
        kept.append((stretch[found], tested.part(found, q)))
        split, stretch, begin, size = tested.split[found], stretch[found], begin[found], size[found]
        stretch = np.tile(stretch, 2)
        begin, size = np.concatenate([begin, begin + split]), np.concatenate([split, size - split])
        long = size >= FEWEST_NIGHTS
        stretch, begin, size = stretch[long], begin[long], size[long]
    which = np.concatenate([np.zeros(0, dtype=np.int64), *(numbers for numbers, _tested in kept)])
    steps = _Tested.together([tested for _numbers, tested in kept])
    back, distance = np.zeros(len(lengths), dtype=np.bool_), np.zeros(len(lengths))
    back[enough], distance[enough] = returning, apart
    new = ~back[which] | (np.abs(steps.shift) > _NEW_LEVEL * distance[which])
    usual = new & _beyond_returns(np.abs(steps.shift), np.where(new, which, -1), apart[returning], len(enough))
    part = steps.part(usual, steps.q)
    return ChangePoints(
        stretches=which[usual], places=part.place, p=part.p, q=part.q, inflation=part.inflation, tested=len(enough),
        noise=noise, returning=back, undecided=undecided, masked=int(np.count_nonzero(new & ~usual)),
    )  # fmt: skip


def _noise(values: Array, starts: Places, lengths: Places) -> tuple[NightNoise, Mask, Array]:
    """Learn the noise of all stretches; also returns which of them go back and forth, and how far."""
    calm = values.copy()
    shapes, many = [], []
    returning, apart = np.zeros(len(starts), dtype=np.bool_), np.zeros(len(starts))
    for some, pieces in _by_length(values, starts, lengths):
        limited = without_strays(pieces)
        calm[starts[some, None] + np.arange(pieces.shape[1])] = limited
        shapes.append(likelihoods(limited))
        many.append(limited.shape[1])
        states = two_states(limited)
        returning[some], apart[some] = states.returning, states.apart
    return NightNoise(calm=calm, weights=usual_correlations(shapes, many)), returning, apart


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tested:
    """The best split of each piece, and its test."""

    place: Places
    """Place in the values of the first night after the split."""
    split: Places
    """Nights of the piece before it."""
    shift: Array
    p: Array
    q: Array
    independent: Array
    """p if nights were independent."""
    inflation: Array

    def part(self, chosen: Mask, q: Array) -> _Tested:
        """Return the chosen pieces, with their ``q``."""
        own = {each.name: getattr(self, each.name)[chosen] for each in fields(self) if each.name != "q"}
        return _Tested(**own, q=q[chosen])

    @classmethod
    def together(cls, parts: Sequence[_Tested]) -> _Tested:
        """Join parts, of which there may be none."""
        whole = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
        first = {name: whole[0 if name in ("place", "split") else 1] for name in (each.name for each in fields(cls))}
        return cls(
            **{name: np.concatenate([*none, *(getattr(p, name) for p in parts)]) for name, none in first.items()}
        )


def _test(noise: NightNoise, begin: Places, size: Places) -> _Tested:
    """Find the best split of each piece, and the chance of a step there."""
    split = np.zeros(len(begin), dtype=np.int64)
    shift, p, independent, inflation = (np.ones(len(begin)) for _ in range(4))
    for some, pieces in noise.pieces(begin, size):
        nights = pieces.shape[1]
        found, chance = likelihoods(pieces), noise.chance(nights)
        ratios = found.ratios(noise.weights)
        split[some] = found.split(noise.weights)
        no_line = ratios[STEP] > ratios[LINE]
        p[some] = np.where(no_line, chance.chance(STEP, ratios[STEP]), 1.0)
        alone = found.ratio_if_independent()
        independent[some] = np.where(no_line, chance.if_independent(STEP, alone), 1.0)
        inflation[some] = found.inflation(STEP, noise.weights)
        after = np.arange(nights) >= split[some, None]
        shift[some] = np.mean(pieces, axis=1, where=after) - np.mean(pieces, axis=1, where=~after)
    return _Tested(
        place=begin + split, split=split, shift=shift, p=p, q=p, independent=independent, inflation=inflation
    )


def _beyond_returns(size: Array, stretch: Places, apart: Array, tested: int) -> Mask:
    """Flag steps that are larger than what stretches go back and forth by, or many more than these stretches.

    Args:
        size: Size of each step.
        stretch: Number of the stretch of each; −1 for steps that do not count.
        apart: Distance of the two levels of each stretch that goes back and forth.
        tested: Number of stretches.
    """
    returned = apart.size - np.searchsorted(np.sort(apart), size / _LARGER)
    largest = np.sort(np.array([size[stretch == one].max() for one in np.unique(stretch[stretch >= 0])]))
    stepped = largest.size - np.searchsorted(largest, size)
    rare = returned < max(_FEWEST_RETURNING, _SHARE_RETURNING * tested)
    return np.asarray(rare | (returned <= _SHARE_BY_CHANCE * stepped))


def pieces_of(starts: Places, lengths: Places, found: ChangePoints) -> tuple[Places, Places, Places]:
    """Cut the stretches at steps; returns where each piece starts in the values, its nights, and its stretch."""
    stretch = np.concatenate([np.arange(len(starts)), found.stretches])
    begin = np.concatenate([starts, found.places])
    order = np.argsort(begin)
    # Stretches follow each other without gaps, so a piece ends where the next one starts.
    size = np.diff(begin[order], append=int(lengths.sum()))
    return begin[order], size, stretch[order]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBounds:
    """Size of each step with 95 % bounds, up to the step before and the one after it."""

    shift: Array
    low: Array
    high: Array
    nights_before: Places
    nights_after: Places


def step_bounds(values: Array, starts: Places, lengths: Places, found: ChangePoints) -> StepBounds:
    """Estimate the size of each step by the means of the pieces beside it, with stray nights of each limited."""
    begin, size, _stretch = pieces_of(starts, lengths, found)
    centred = values - values.mean()
    for some, pieces in _by_length(centred, begin, size):
        centred[begin[some, None] + np.arange(pieces.shape[1])] = without_strays(pieces)
    sums = np.concatenate([[0.0], np.cumsum(centred)])
    mean = (sums[begin + size] - sums[begin]) / size
    squares = np.add.reduceat((centred - np.repeat(mean, size)) ** 2, begin)
    after = np.searchsorted(begin, found.places)
    before = after - 1
    degrees = size[after] + size[before] - 2
    one = (squares[after] + squares[before]) / degrees * found.inflation
    shift = mean[after] - mean[before]
    reach = t_quantile(degrees) * np.sqrt(one * (1 / size[after] + 1 / size[before]))
    return StepBounds(
        shift=shift, low=shift - reach, high=shift + reach, nights_before=size[before], nights_after=size[after]
    )


def slopes(values: Array, days: Array) -> tuple[Array, Array, Array, Array]:
    """Compute the Theil–Sen slope of each row, its 95 % bounds, and the two-sided p of the Mann–Kendall test.

    The slope is the median of the slopes between all pairs of nights; bounds are the slopes of rank (N ∓ z · √V) / 2 of
    N pairs, with V the variance of Kendall's S (Sen, J. Am. Stat. Assoc. 63, 1968). ``values`` and ``days`` have the
    shape (m, nights); days rise along each row.
    """
    nights = values.shape[1]
    first, second = np.triu_indices(nights, 1)
    rise, run = values[:, second] - values[:, first], days[:, second] - days[:, first]
    pairs = rise.shape[1]
    each = np.sort(rise / run, axis=1)
    variance = nights * (nights - 1) * (2 * nights + 5) / 18
    reach = normal_quantile() * np.sqrt(variance)
    lowest = max(round((pairs - reach) / 2) - 1, 0)
    highest = min(round((pairs + reach) / 2), pairs - 1)
    score = np.sign(rise).sum(axis=1)
    z = np.maximum(np.abs(score) - 1, 0) / np.sqrt(variance)
    return np.median(each, axis=1), each[:, lowest], each[:, highest], np.asarray(2 * ndtr(-z))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends:
    """Slow drift of the pieces between steps that have enough nights."""

    pieces: int
    """Number of all pieces."""
    stretch: Places
    begin: Places
    """Place in the values of the first night of each piece."""
    nights: Places
    slope: Array
    """Per day."""
    low: Array
    high: Array
    p: Array


def trends(values: Array, days: Array, starts: Places, lengths: Places, found: ChangePoints) -> Trends:
    """Compute the slope of each piece between steps, with bounds, and its chance in noise."""
    begin, size, stretch = pieces_of(starts, lengths, found)
    again = np.append(False, days[1:] <= days[:-1])  # a slope needs rising days: pieces with a doubled night are out
    doubles = np.concatenate([[0], np.cumsum(again)])
    kept = (size >= FEWEST_NIGHTS) & (doubles[begin + size] == doubles[np.minimum(begin + 1, len(again))])
    total = len(begin)
    begin, size, stretch = begin[kept], size[kept], stretch[kept]
    results = np.full((4, len(begin)), np.nan)
    for some, pieces in _by_length(values, begin, size):
        nights = pieces.shape[1]
        for few in np.array_split(np.arange(len(some)), 1 + len(some) * nights * nights // _AT_ONCE):
            results[:, some[few]] = slopes(pieces[few], days[begin[some[few], None] + np.arange(nights)])
    chance, inflation = _line_chances(begin, size, found)
    factor = np.sqrt(np.maximum(inflation, 1.0))
    slope, low, high, p = results
    return Trends(
        pieces=total,
        stretch=stretch,
        begin=begin,
        nights=size,
        slope=slope,
        low=slope - (slope - low) * factor,
        high=slope + (high - slope) * factor,
        p=np.where(found.returning[stretch], 1.0, np.maximum(p, chance)),
    )


def _line_chances(begin: Places, size: Places, found: ChangePoints) -> tuple[Array, Array]:
    """Compute the chance of a line in each piece's noise, 1 if a step explains more; and the inflation beside it."""
    p, inflation = np.ones(len(begin)), np.ones(len(begin))
    for some, pieces in found.noise.pieces(begin, size):
        shapes = likelihoods(without_strays(pieces))
        ratios = shapes.ratios(found.noise.weights)
        chance = found.noise.chance(pieces.shape[1]).chance(LINE, ratios[LINE])
        p[some] = np.where(ratios[LINE] > ratios[STEP], chance, 1.0)
        inflation[some] = shapes.inflation(LINE, found.noise.weights)
    return p, inflation
