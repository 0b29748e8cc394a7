"""Differences that chance alone makes, learned from the sessions themselves: their sides are exchanged.

If nothing changed, the sessions of a cell belong to no side. Each way to share them out again is then as likely as the
one that was measured, whatever the noise is: heavy tails, stray sessions, a kernel with two states. So the statistics
of all exchanges, over all cells of the page, show how large a difference chance makes (a permutation test as in Tusher,
Tibshirani and Chu, *Significance analysis of microarrays applied to the ionizing radiation response*, PNAS 98, 2001).

A cell that did change must not count as chance. An exchange therefore counts only beyond the cell's own difference:
where a share f of a cell's exchanges lies beyond t and its own difference does not, the odds f / (1 − f) have the
expectation f for a cell that did not change, and are 0 for one whose own difference is the largest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import Any, Final

import numpy as np

from kernel_matrix.analysis.variance_prior import FEWEST_CELLS, Array, Mask, VariancePrior, of_distinct
from kernel_matrix.measure.intervals import LEVEL, t_quantile

_MOST_EXCHANGES: Final = 150
"""Exchanges per cell; if there are more, so many are drawn."""
_TOP: Final = 10
"""Cells with the largest exchanged differences, from which the tail beyond all of them is extrapolated."""
_AT_ONCE: Final = 20_000
"""Cells whose exchanges are in memory together."""
_SAME: Final = 1e-9
"""Sizes that differ by less than this share are equal."""
_MOST_CELLS: Final = 2_000
"""Cells from which the factors of intervals are estimated."""
_LEAST_MEDIAN: Final = 0.1
"""Least median size: if most sessions are equal to the tick of the clock, most exchanges make no difference."""
LEVELS: Final = (0.90, LEVEL)
"""Levels of intervals: that of two one-sided tests at 5 %, and that of intervals that are shown."""
LEAST_DEVIATION: Final = 1e-4
"""Smallest standard deviation between sessions, as a share: equal medians only show that the clock's tick is coarse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTable:
    """Logarithms of the sessions of cells that have equally many on each side."""

    rows: Array
    """Number of each cell."""
    base: Array
    """Shape (cells, sessions); of paired sessions, the differences new − base."""
    new: Array
    """Shape (cells, sessions); no column if sessions are paired."""

    @property
    def paired(self) -> bool:
        """True if the columns of ``base`` are differences of pairs."""
        return not self.new.size

    def statistics(self, chosen: Mask) -> tuple[Array, Array]:
        """Compute the difference of means and the variance of one session for each exchange.

        Args:
            chosen: Shape (exchanges, sessions): the sessions that count as base; of pairs, those that are turned round.

        Returns:
            Two arrays of shape (cells, exchanges). The variance is pooled over both sides.
        """
        together = np.concatenate([self.base, self.new], axis=1)
        if self.paired:
            count = together.shape[1]
            mean = together @ np.where(chosen, -1.0, 1.0).T / count
            squares = np.sum(together**2, axis=1, keepdims=True)
            return mean, _floored((squares - count * mean**2) / (count - 1))
        together = together - together.mean(axis=1, keepdims=True)  # centred, to avoid cancellation
        of_base = chosen.astype(np.float64).T
        count, rest = self.base.shape[1], self.new.shape[1]
        base, all_squares = together @ of_base, np.sum(together**2, axis=1, keepdims=True)
        new = -base  # the sum of all is 0
        squares = all_squares - base**2 / count - new**2 / rest
        return new / rest - base / count, _floored(squares / (count + rest - 2))

    def part(self, some: slice) -> SessionTable:
        """Return some of the cells."""
        return SessionTable(rows=self.rows[some], base=self.base[some], new=self.new[some])

    def without(self, shift: float) -> SessionTable:
        """Return the table with ``shift`` taken out of each difference."""
        if self.paired:
            return replace(self, base=self.base - shift)
        return replace(self, new=self.new - shift)

    @property
    def degrees(self) -> int:
        """Degrees of freedom of the variance."""
        bases, news = self.base.shape[1], self.new.shape[1]
        return int(bases - 1 if self.paired else bases + news - 2)

    @property
    def weight(self) -> float:
        """Variance of the difference ÷ that of one session."""
        return float(1 / self.base.shape[1] + (0.0 if self.paired else 1 / self.new.shape[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tail:
    """Number of cells expected to have at least a size, if nothing changed."""

    at: Array
    """Sizes, descending."""
    expected: Array
    """Number of cells expected at or beyond each size."""
    own: Array
    """Size of each cell as measured, ascending."""

    def expected_beyond(self, size: Array) -> Array:
        """Compute the number of cells expected at or beyond each ``size``."""
        place = np.searchsorted(-self.at, -size * (1 - _SAME), side="right")
        found: Array = np.concatenate([[0.0], self.expected])[place]
        return found

    def quantile(self, level: float) -> float | None:
        """Compute the size that a share ``level`` of unchanged cells stays below; None if too few cells stay so."""
        # Cells below a size, and those expected beyond it, are all cells that did not change.
        below = np.searchsorted(self.own, self.at)
        share = self.expected / np.maximum(self.expected + below, 1.0)
        more = np.flatnonzero(share > 1 - level)
        if not more.size or self.expected[more[0]] + below[more[0]] < FEWEST_CELLS:
            return None
        return float(self.at[more[0]])


@dataclass(frozen=True, slots=True, kw_only=True)
class ChanceDifferences:
    """Sizes of t statistics that chance alone makes on a page."""

    rows: Array
    """Numbers of the cells whose sessions were exchanged, ascending."""
    own: Array
    """Size of each of these cells as measured."""
    tail: _Tail
    top: float
    """Size beyond which the tail is extrapolated; infinite if it is not."""
    excess: float
    """Mean excess of the largest sizes over ``top``."""
    middle: float
    """Median size that sessions alone make, without effects of runs."""
    factors: Mapping[float, float]
    """Level → factor by which Student's interval must be widened, or narrowed, to hold it."""

    def expected_beyond(self, size: Array) -> Array:
        """Compute the number of cells expected with a statistic of this size or more, if nothing changed."""
        seen = self.tail.expected_beyond(size)
        if np.isfinite(self.top):
            beyond = np.maximum(np.minimum(size, 1e6) - self.top, 0.0)
            thinning = self._at_top() * np.exp(-beyond / max(self.excess, 1e-9))
            seen = np.maximum(seen, np.where(size > self.top, thinning, 0.0))
        return seen

    def size_for(self, expected: float) -> float:
        """Compute the least size beyond which at most ``expected`` cells are."""
        more = np.flatnonzero(self.tail.expected > expected)
        least = float(self.tail.at[more[0]]) if more.size else 0.0
        if np.isfinite(self.top) and self._at_top() > expected:
            least = max(least, self.top + self.excess * float(np.log(self._at_top() / expected)))
        return least

    def _at_top(self) -> float:
        return float(self.tail.expected_beyond(np.array([self.top]))[0])


def chance_differences(tables: Sequence[SessionTable], prior: VariancePrior, shift: float = 0.0) -> ChanceDifferences:
    """Exchange the sessions of every cell.

    Args:
        tables: At least one, of cells with at least one degree of freedom each.
        prior: Prior of the cells' variances.
        shift: Difference new − base that most cells have in common; it is taken out before sessions are exchanged.
    """
    parts = [part for table in tables for part in _parts(table)]
    own = np.concatenate([_sizes(part, _exchanges(part)[:1], prior)[0][:, 0] for part in parts])
    steps = [_steps(_sizes(part.without(shift), _exchanges(part), prior)[0]) for part in parts]
    largest = np.concatenate([step.largest for step in steps])
    top, excess = np.inf, 0.0
    if largest.size >= _TOP:
        most = np.sort(largest)[-_TOP:]
        top, excess = float(most[0]), float(np.mean(most - most[0]))
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows)
    return ChanceDifferences(
        rows=rows[order], own=own[order], tail=_tail(steps), top=top, excess=excess, **_shape(tables, prior, shift)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """Steps of the expected number of cells, of some cells."""

    sizes: Array
    heights: Array
    own: Array
    """Size of each cell as measured."""
    largest: Array
    """Largest exchanged size of each cell that has one beyond its own."""


def _tail(steps: Sequence[_Steps]) -> _Tail:
    sizes, heights = (np.concatenate([getattr(step, name) for step in steps]) for name in ("sizes", "heights"))
    order = np.argsort(-sizes, kind="stable")
    own = np.sort(np.concatenate([step.own for step in steps]))
    return _Tail(at=sizes[order], expected=np.maximum(np.cumsum(heights[order]), 0.0), own=own)


def _exchanges(table: SessionTable) -> Mask:
    """Return the sessions that count as base (of pairs: are turned round), per exchange; the first is as measured."""
    count = table.base.shape[1]
    total = count + table.new.shape[1]
    number = 2**total if table.paired else comb(total, count)
    if number > _MOST_EXCHANGES:
        dice = np.random.default_rng(0)  # the same results must always give the same answer
        if table.paired:
            drawn = dice.random((_MOST_EXCHANGES, total)) < 0.5
        else:
            drawn = np.argsort(dice.random((_MOST_EXCHANGES, total)), axis=1) < count
        drawn[0] = False if table.paired else np.arange(total) < count
        return drawn
    if table.paired:
        turned: Mask = (np.arange(number)[:, None] >> np.arange(total)) % 2 == 1
        return turned
    chosen = np.zeros((number, total), dtype=np.bool_)
    np.put_along_axis(chosen, np.array(list(combinations(range(total), count))), values=True, axis=1)
    return chosen


def _parts(table: SessionTable) -> Iterator[SessionTable]:
    """Yield the table in parts of which all exchanges fit into memory."""
    for start in range(0, len(table.base), _AT_ONCE):
        yield table.part(slice(start, start + _AT_ONCE))


def _steps(size: Array) -> _Steps:
    """Return the steps of the expected number of cells.

    Args:
        size: Shape (cells, exchanges); the first exchange is as measured.
    """
    own, number = size[:, 0], size.shape[1]
    ranked = -np.sort(-size, axis=1)[:, :-1]  # the smallest is never beyond another
    beyond = ranked > own[:, None] * (1 + _SAME)
    rank = np.arange(1, number)
    step = np.diff(rank / (number - rank), prepend=0.0)
    # At and below its own size a cell is no evidence of chance: what it counted is taken back.
    back = -np.where(beyond, step, 0.0).sum(axis=1)
    some = beyond.any(axis=1)
    return _Steps(
        sizes=np.concatenate([ranked[beyond], own[some]]),
        heights=np.concatenate([np.broadcast_to(step, beyond.shape)[beyond], back[some]]),
        own=own,
        largest=ranked[some, 0],
    )


def _shape(tables: Sequence[SessionTable], prior: VariancePrior, shift: float) -> dict[str, Any]:
    """Compute the median of sizes, and their quantiles in units of Student's, from some cells of every table."""
    total = sum(len(table.base) for table in tables)
    share = _MOST_CELLS / max(total, _MOST_CELLS)
    parts = [table.part(slice(0, max(1, int(len(table.base) * share)))) for table in tables]
    found = [_sizes(part.without(shift), _exchanges(part), prior) for part in parts]
    factors = {}
    for level in LEVELS:
        tail = _tail([_steps(size / _quantiles(degrees, level)) for size, degrees in found])
        factors[level] = tail.quantile(level) or 1.0
    middle = np.median(np.concatenate([_without_effects(part, prior) for part in parts]))
    return {"factors": factors, "middle": max(float(middle), _LEAST_MEDIAN)}


def _without_effects(table: SessionTable, prior: VariancePrior) -> Array:
    """Compute sizes of exchanges that effects of runs do not enlarge: of deviations from each side's mean."""
    chosen = _exchanges(table)
    centred = replace(table, base=_centred(table.base), new=_centred(table.new) if table.new.size else table.new)
    other = np.any(chosen != chosen[0], axis=1) & np.any(chosen == chosen[0], axis=1)  # the sides as they are: 0
    total = chosen.shape[1] - (not table.paired)
    # Deviations lack what the exchanged sides have in common with the measured ones.
    common = (len(chosen) / total - np.count_nonzero(~other)) / max(np.count_nonzero(other), 1)
    size, _degrees = _sizes(centred, chosen[other], prior)
    return size.ravel() / float(np.sqrt(max(1 - common, 0.5)))


def _centred(sessions: Array) -> Array:
    centred: Array = sessions - sessions.mean(axis=1, keepdims=True)
    return centred


def _sizes(table: SessionTable, chosen: Mask, prior: VariancePrior) -> tuple[Array, Array]:
    """Compute the size of each exchange's t statistic, and its degrees of freedom."""
    difference, variance = table.statistics(chosen)
    variance, degrees = prior.shrink(variance, np.full(variance.shape, float(table.degrees)))
    return np.abs(difference) / np.sqrt(variance * table.weight), degrees


def _quantiles(degrees: Array, level: float) -> Array:
    return of_distinct(degrees, lambda distinct: t_quantile(distinct, level))


def _floored(variance: Array) -> Array:
    return np.maximum(variance, LEAST_DEVIATION**2)
