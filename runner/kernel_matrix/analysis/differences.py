"""Differences between two sets of sessions for many cells at once, on the scale of logarithms.

The model of the noise: a time is the product of the cell's own time, an effect of its run, and an effect of its
session. The parts are estimated per cell where it has the data, and drawn towards those of all cells of the page that
are of its class (:func:`noise_classes`):

- sessions within a run: from the cell's sessions (:mod:`kernel_matrix.analysis.variance_prior`);
- runs: from cells with several runs on a side; without any, from the spread of all differences on the page, up to
  :data:`MOST_RUN_DEVIATION`; and where that is not known either, :data:`DEFAULT_RUN_DEVIATION`;
- where no cell has two sessions, from the spread of the differences, or from :func:`default_deviation`.

The distribution need not be normal: :mod:`kernel_matrix.analysis.relabelled_sessions` corrects p values and intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np
import polars as pl
from scipy import special  # type: ignore[import-untyped]

from kernel_matrix.analysis.relabelled_sessions import (
    LEAST_DEVIATION,
    LEVELS,
    ChanceDifferences,
    SessionTable,
    chance_differences,
)
from kernel_matrix.analysis.timed_sessions import squares_around
from kernel_matrix.analysis.variance_prior import FEWEST_CELLS, Array, VariancePrior, fit_prior
from kernel_matrix.measure.intervals import t_quantile

DEFAULT_RUN_DEVIATION: Final = 0.005
"""Standard deviation between runs where the results do not show it: the largest seen on GPUs of data centres."""
MOST_RUN_DEVIATION: Final = 0.01
"""Largest one that is taken from the spread of all differences: if half of the cells moved by more, they changed."""
DEFAULT_DEGREES: Final = 4.0
"""Degrees of freedom that a default counts for: a true value twice as large is then no surprise."""
SIZES_NS: Final = (10_000, 100_000)
"""Times of a call at which its usual noise changes: shorter calls are noisier."""
FEWEST_OF_CLASS: Final = 40
"""Cells of one size of call that are a class of their own."""
_STUDENT: Final = dict.fromkeys(LEVELS, 1.0)
"""Factors of intervals that are Student's."""
_POWER: Final = 0.9
"""Probability with which the smallest change is found."""
_TAILS: Final = (0.95, 0.98, 0.99)
"""Shares of the sizes below those that show how heavy the tails are; the heaviest counts."""


class NoiseSource(str, Enum):
    """Source of an estimate of the noise between runs."""

    RUNS = "several runs"
    PAGE = "the spread of all differences"
    DEFAULT = "a default"
    TURNS = "sessions in turns"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDifferences:
    """Estimated differences of logarithms, new − base, of every cell; arrays of one length."""

    row: Array
    """The cell's number."""
    effect: Array
    error: Array
    """Standard error of the effect."""
    p: Array
    """Two-sided, of no difference."""
    reach: dict[float, Array]
    """Level → half-width of the two-sided interval."""
    found_from: Array
    """Size from which a lone difference on the page is significant."""
    run_deviation: float
    """Standard deviation between runs of a usual cell."""
    run_source: NoiseSource

    def smallest(self, margin: float) -> Array:
        """Compute the smallest difference that is shown to be beyond ``margin`` with a probability of 90 %."""
        sure = special.ndtri(_POWER) * self.error
        found: Array = np.maximum(np.log1p(margin) + self.reach[LEVELS[0]], self.found_from) + sure
        return found


def shorth(values: Array) -> float:
    """Compute the middle of the shortest interval with half of the values: that of a majority, if there is one."""
    ordered, half = np.sort(values), (values.size - 1) // 2
    start = int(np.argmin(ordered[half:] - ordered[: values.size - half]))
    return float(ordered[start] + ordered[start + half]) / 2


def default_deviation(nanoseconds: Array, *, shared: Any = False) -> Array:
    """Return the standard deviation between sessions that is assumed where nothing shows it.

    5 % below 10 µs, 3 % below 100 µs, else 2 %: identical code differed by up to 3.2 % between two processes.

    Args:
        nanoseconds: Time of a call.
        shared: True where it ran on processor cores, which other programs use too: three times as much.
    """
    short_ns, long_ns = SIZES_NS
    alone = np.where(nanoseconds < short_ns, 0.05, np.where(nanoseconds < long_ns, 0.03, 0.02))
    return np.where(shared, 3 * alone, alone)


def noise_classes(default: pl.DataFrame) -> list[pl.DataFrame]:
    """Split cells into classes of the same :func:`default_deviation`: by size of call, and by what it is timed on.

    Cells are drawn towards the noise of their class. Drawn towards that of a whole page, intervals of its noisy cells
    would be too narrow, and those of its quiet cells too wide. A class of few cells is joined to the next.

    Args:
        default: ``deviation``, the standard deviation that is assumed, and any other column.
    """
    classes: list[pl.DataFrame] = []
    for _, cells in default.sort("deviation").group_by("deviation", maintain_order=True):
        if classes and min(classes[-1].height, cells.height) < FEWEST_OF_CLASS:
            classes[-1] = pl.concat([classes[-1], cells])
        else:
            classes.append(cells)
    return classes


def paired_differences(pairs: pl.DataFrame, q: float) -> LogDifferences:
    """Estimate differences from sessions that were measured in turns; effects of runs cancel.

    Args:
        pairs: ``row`` and ``log``, the difference new − base; two or more per row.
        q: Rate of false discoveries.
    """
    log = pl.col("log")
    cells = pairs.group_by("row").agg(effect=log.mean(), variance=log.var(), sessions=pl.len()).sort("row")
    count = _numbers(cells, "sessions")
    variance, degrees = np.maximum(_numbers(cells, "variance"), LEAST_DEVIATION**2), count - 1
    prior = fit_prior(variance, degrees)
    chance = None
    if prior is not None:
        shift = shorth(_numbers(cells, "effect"))
        chance = chance_differences(_tables(pairs.with_columns(side=0)), prior, shift)
        variance, degrees = prior.shrink(variance, degrees)
    errors = _Errors(sessions=variance / count, runs=np.zeros_like(count), degrees=degrees)
    return _tested(cells, errors, _RunNoise(0.0, NoiseSource.TURNS), chance=chance, q=q)


def unpaired_differences(
    sessions: pl.DataFrame, default: pl.DataFrame, q: float, *, mostly_unchanged: bool
) -> LogDifferences:
    """Estimate differences between sessions of different runs.

    Args:
        sessions: ``row``, ``side`` (0 base, 1 new), ``run`` and ``log``; at least one session per row and side.
        default: ``row`` and ``deviation``, the standard deviation of a session that is assumed where none is known.
        q: Rate of false discoveries.
        mostly_unchanged: True if most cells are not expected to differ: the spread of all differences is then noise.
    """
    separate = bool((_runs(sessions)["n"] > 1).any())
    if not separate:  # the noise of runs and of sessions is one then: every session is independent
        sessions = sessions.with_columns(run=pl.lit(0))
    runs = _runs(sessions)
    cells = _moments(runs).join(default, on="row").sort("row")
    variance, degrees = _numbers(cells, "variance"), _numbers(cells, "degrees")
    prior = fit_prior(variance, degrees)
    if not degrees.any() and mostly_unchanged and cells.height >= FEWEST_CELLS:
        weighed = _weighed(runs.with_columns(variance=pl.lit(1.0)), 0.0)
        return _from_spread(weighed, np.sqrt(2) * _numbers(cells, "deviation"), q)
    chance = None
    if prior is not None:
        of_sides = _moments(_runs(sessions.with_columns(run=pl.lit(0))))
        of_sides_prior = fit_prior(_numbers(of_sides, "variance"), _numbers(of_sides, "degrees"))
        shift = shorth(_numbers(_weighed(runs.with_columns(variance=pl.lit(1.0)), 0.0), "effect"))
        chance = chance_differences(_tables(sessions), of_sides_prior or prior, shift)
        variance, degrees = prior.shrink(variance, degrees)
    else:
        unknown = degrees == 0
        variance = np.where(unknown, _numbers(cells, "deviation") ** 2, variance)
        degrees = np.where(unknown, DEFAULT_DEGREES, degrees)
    cells = cells.with_columns(variance=pl.Series(variance), degrees=pl.Series(degrees))
    runs = runs.join(cells.select("row", "variance", "degrees"), on="row")
    noise = _run_noise(runs, separate=separate, chance=chance if mostly_unchanged else None)
    weighed = _weighed(runs, noise.variance)
    return _tested(weighed, _errors(weighed, degrees, noise), noise, chance=chance, q=q)


@dataclass(frozen=True, slots=True)
class _RunNoise:
    """Noise between the runs of a usual cell."""

    variance: float
    source: NoiseSource


@dataclass(frozen=True, slots=True, kw_only=True)
class _Errors:
    """Variances of the effect of each cell."""

    sessions: Array
    """The part that its sessions cause."""
    runs: Array
    """The part that its runs cause."""
    degrees: Array


def _runs(sessions: pl.DataFrame) -> pl.DataFrame:
    """Return one row per run: ``n`` sessions, their ``mean``, and ``squares``, the sum of squares around it."""
    return sessions.group_by("row", "side", "run").agg(
        n=pl.len(), mean=pl.col("log").mean(), squares=squares_around(pl.col("log"))
    )


def _moments(runs: pl.DataFrame) -> pl.DataFrame:
    """Return per cell the ``variance`` of sessions within runs, and its ``degrees`` of freedom."""
    found = runs.group_by("row").agg(pl.col("squares").sum(), degrees=(pl.col("n") - 1).sum())
    variance = (pl.col("squares") / pl.col("degrees")).clip(lower_bound=LEAST_DEVIATION**2)
    return found.with_columns(variance=pl.when(pl.col("degrees") > 0).then(variance).otherwise(0.0)).sort("row")


def _tables(sessions: pl.DataFrame) -> list[SessionTable]:
    """Arrange the sessions of cells with equally many on each side; leave out cells with one session a side."""
    rows = sessions.sort("row").group_by("row", maintain_order=True)
    listed = rows.agg(base=pl.col("log").filter(pl.col("side") == 0), new=pl.col("log").filter(pl.col("side") == 1))
    counts = {"bases": pl.col("base").list.len(), "news": pl.col("new").list.len()}
    tables = []
    for (bases, news), cells in listed.with_columns(**counts).group_by("bases", "news", maintain_order=True):
        if bases + news < 2 or (bases, news) == (1, 1):
            continue
        base, new = (np.array(cells[side].to_list(), np.float64).reshape(cells.height, -1) for side in ("base", "new"))
        tables.append(SessionTable(rows=_numbers(cells, "row"), base=base, new=new))
    return tables


def _run_noise(runs: pl.DataFrame, *, separate: bool, chance: ChanceDifferences | None) -> _RunNoise:
    """Estimate the variance between runs of a usual cell; ``chance``: None if most cells may have changed."""
    if not separate:
        return _RunNoise(0.0, NoiseSource.RUNS)
    several = runs.filter((pl.len() > 1).over("row", "side"))
    if several["row"].n_unique() >= FEWEST_CELLS:
        return _RunNoise(run_variance(several), NoiseSource.RUNS)
    if chance is None:
        return _RunNoise(DEFAULT_RUN_DEVIATION**2, NoiseSource.DEFAULT)
    weighed = _weighed(runs, 0.0)
    effect = _numbers(weighed, "effect")
    square = (effect - shorth(effect)) ** 2 / 2
    found = _excess(square / chance.middle**2, _numbers(weighed, "weight") / 2)
    return _RunNoise(min(found, MOST_RUN_DEVIATION**2), NoiseSource.PAGE)


def run_variance(runs: pl.DataFrame) -> float:
    """Estimate the variance between runs of a usual cell.

    Args:
        runs: One row per run: ``row``, ``side``, the ``mean`` of its ``n`` sessions, and the cell's ``variance`` of
            sessions with its ``degrees`` of freedom; several runs per row and side.
    """
    sides = runs.group_by("row", "side").agg(
        square=pl.col("mean").var(),
        between=pl.len() - 1,
        explained=(pl.col("variance") / pl.col("n")).mean(),
        degrees=pl.col("degrees").first(),
    )
    square, between, explained, degrees = (_numbers(sides, name) for name in sides.columns[2:])
    usual = special.fdtri(between, np.where(degrees > 0, np.minimum(degrees, 1e9), 1e9), 0.5)
    return _excess(square / usual, explained)


def _excess(square: Array, explained: Array) -> float:
    """Find the variance v for which half of the squares lie below v + ``explained``.

    Args:
        square: Squares, as multiples of the median that they have if they are noise: cells that changed hardly move it.
        explained: Variance of each that sessions cause.
    """
    half = (square.size + 1) // 2
    if np.count_nonzero(square <= explained) >= half:
        return 0.0
    low, high = 0.0, float(square.max())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if np.count_nonzero(square <= middle + explained) >= half else (middle, high)
    return low


def _weighed(runs: pl.DataFrame, run_variance: float) -> pl.DataFrame:
    """Average runs by the inverse of their variances.

    Returns:
        Per row the ``effect``, its variance ``weight``, the part ``of_sessions`` in it, and ``scatter``: the sum of
        squares of runs around their side's mean in units of their variances, with ``between`` degrees of freedom.
    """
    inverse = 1 / (run_variance + pl.col("variance") / pl.col("n"))
    weights = runs.with_columns(inverse=inverse)
    sides = weights.group_by("row", "side").agg(
        total=pl.col("inverse").sum(),
        middle=(pl.col("inverse") * pl.col("mean")).sum() / pl.col("inverse").sum(),
        between=pl.len() - 1,
        of_sessions=pl.col("variance").first() / pl.col("n").sum(),
    )
    off = (pl.col("inverse") * (pl.col("mean") - pl.col("middle")) ** 2).sum()
    scatter = weights.join(sides, on=["row", "side"]).group_by("row").agg(scatter=off)
    sign = pl.when(pl.col("side") == 1).then(1).otherwise(-1)
    found = sides.group_by("row").agg(
        effect=(sign * pl.col("middle")).sum(),
        weight=(1 / pl.col("total")).sum(),
        of_sessions=pl.col("of_sessions").sum(),
        between=pl.col("between").sum(),
    )
    return found.join(scatter, on="row").sort("row")


def _errors(weighed: pl.DataFrame, degrees: Array, noise: _RunNoise) -> _Errors:
    """Return the variances of the effects; cells whose runs scatter more than usual get more."""
    total, of_sessions = _numbers(weighed, "weight"), _numbers(weighed, "of_sessions")
    between = _numbers(weighed, "between")
    if noise.source is NoiseSource.PAGE or not between.any():
        of_runs = np.maximum(total - of_sessions, 0.0)
        if noise.source is NoiseSource.DEFAULT:  # Satterthwaite's approximation
            degrees = total**2 / (of_sessions**2 / degrees + of_runs**2 / DEFAULT_DEGREES)
        return _Errors(sessions=of_sessions, runs=of_runs, degrees=degrees)
    scatter = _numbers(weighed, "scatter") / np.maximum(between, 1.0)
    prior = fit_prior(scatter, between) or VariancePrior(variance=1.0, degrees=DEFAULT_DEGREES)
    factor, degrees = prior.shrink(scatter, between)
    total = factor * total
    of_sessions = np.minimum(of_sessions, total)
    return _Errors(sessions=of_sessions, runs=total - of_sessions, degrees=degrees)


def _from_spread(weighed: pl.DataFrame, usual: Array, q: float) -> LogDifferences:
    """Test effects that have one session a side, by the spread of all of them.

    Args:
        weighed: The effects.
        usual: Their standard errors by :func:`default_deviation`, of which only the proportions matter.
        q: Rate of false discoveries.
    """
    effect = _numbers(weighed, "effect")
    size = np.abs(effect - shorth(effect)) / usual
    middle, *far = (max(np.quantile(size, share, method="lower"), LEAST_DEVIATION) for share in (0.5, *_TAILS))
    # Degrees of freedom of the Student distribution whose tails are as heavy.
    candidates = np.array([1e9, 100, 50, 30, 20, 15, 10, 8, 6, 5, 4, 3, 2.5, 2, 1.5, 1])
    degrees = min(
        1 / np.interp(one / middle, t_quantile(candidates, share) / t_quantile(candidates, 0.5), 1 / candidates)
        for one, share in zip(far, _TAILS, strict=True)
    )
    scale = middle / float(t_quantile(degrees, 0.5))
    variance = (scale * usual) ** 2
    errors = _Errors(sessions=variance, runs=np.zeros_like(variance), degrees=np.full_like(variance, degrees))
    factors = {level: float(np.quantile(size, level) / scale / t_quantile(degrees, level)) for level in LEVELS}
    return _tested(weighed, errors, _RunNoise(0.0, NoiseSource.PAGE), chance=None, q=q, factors=factors)


def _tested(
    cells: pl.DataFrame,
    errors: _Errors,
    noise: _RunNoise,
    *,
    chance: ChanceDifferences | None,
    q: float,
    factors: Mapping[float, float] = _STUDENT,
) -> LogDifferences:
    """Test every effect, and compute its interval."""
    rows, effect = _numbers(cells, "row"), _numbers(cells, "effect")
    error = np.sqrt(errors.sessions + errors.runs)
    p = 2 * special.stdtr(errors.degrees, -np.abs(effect) / error)
    lone = q / max(effect.size, 1)
    found_from = t_quantile(errors.degrees, 1 - lone) * error
    if chance is not None:
        own = np.abs(effect) / np.sqrt(errors.sessions)
        own[np.searchsorted(rows, chance.rows)] = chance.own
        p = np.maximum(p, np.minimum(chance.expected_beyond(own) / chance.rows.size, 1.0))
        size = chance.size_for(lone * chance.rows.size)
        found_from = np.maximum(found_from, size * np.sqrt(errors.sessions))
        factors = chance.factors
    reach = {
        level: t_quantile(errors.degrees, level) * np.sqrt(factor**2 * errors.sessions + errors.runs)
        for level, factor in factors.items()
    }
    return LogDifferences(
        row=rows,
        effect=effect,
        error=error,
        p=p,
        reach=reach,
        found_from=found_from,
        run_deviation=float(np.sqrt(noise.variance)),
        run_source=noise.source,
    )


def benjamini_hochberg(p: Array) -> Array:
    """Adjust p values to false discovery rates (Benjamini and Hochberg, J. R. Stat. Soc. B 57, 1995)."""
    # scipy.stats.false_discovery_control gives the same, but importing scipy.stats takes seconds.
    order = np.argsort(p)
    stepped = p[order] * p.size / np.arange(1, p.size + 1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.minimum.accumulate(stepped[::-1])[::-1], 1)
    return adjusted


def _numbers(frame: pl.DataFrame, name: str) -> Array:
    return frame[name].to_numpy().astype(np.float64)
