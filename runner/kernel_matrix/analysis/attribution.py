"""Attribution: the share of correctness and speed-up that category, method, GPU, toolchain and dtype explain.

*Correctness* of a cell is modelled as logit P(passed) = a + one effect per level of each factor; the explained share
is 1 − D/D0, the deviance over that of the model without factors (McFadden, *Conditional logit analysis of qualitative
choice behavior*, 1974). *Log speed-up* of a workload of a cell that passed is modelled by least squares with the same
effects; the explained share is R² = 1 − SSE/SST.

Each factor has two shares: alone in the model (*add one*), and the loss of the full model without it (*drop one*). They
agree for balanced factors; where they differ, factors explain the same variation together. Effects themselves are not
reported: the effect of a level that always or never passes is unbounded, while the deviance is not.

Factors with more levels explain more by chance, and results of one problem are correlated. So each factor's share
alone is reported beside the share after permuting its levels over whole problems, and intervals come from a bootstrap
of problems.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import expit, xlogy  # type: ignore[import-untyped]  # no types

from kernel_matrix.analysis.outcomes import outcomes
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.slices import columns_of
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.analysis.timed_sessions import log_of
from kernel_matrix.errors import NothingSelectedError, UsageError
from kernel_matrix.measure.intervals import t_quantile

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

FACTORS: Final = ("category", "method", "gpu", "toolchain", "dtype")
"""Factors when a request names none; names of slices."""
ALL_TOGETHER: Final = "(all together)"
_TASK: Final = "problem"
"""The unit that is permuted and resampled; it cannot be a factor itself."""

_MOST_LEVELS: Final = 200
"""Levels of a factor; a factor with more is left out, and a note says so."""
_PERMUTATIONS: Final = (20, 999)
"""Smallest and largest number of permutations of a factor's levels."""
_PERMUTED_ROWS: Final = 2e6
"""Rows that all permutations of a factor may process together; bounds the run time."""
_DRAWS: Final = (40, 200)
"""Smallest and largest number of bootstrap draws: an interval from their mean and deviation needs no more (Efron and
Tibshirani, *An Introduction to the Bootstrap*, 1993, section 6.4)."""
_DRAWN_ROWS: Final = 5e6
"""Combinations that the models of all draws may process together; bounds the run time."""
_ROWS_AT_ONCE: Final = 1e6
"""Rows of draws that are in memory together."""
_FEW_TASKS: Final = 10
"""Problems; with fewer, the bootstrap's intervals are too narrow, and a note says so."""
_PER_LEVEL: Final = 3
"""Problems per level that the bootstrap needs, on average, for a factor that is constant within each problem."""
_SEED: Final = 20260301
"""Fixed, so that the same tables give the same answer."""

_STEPS: Final = 60
"""Limit of the steps of a fit by Newton's method; it ends when the deviance no longer falls."""
_RIDGE: Final = 1e-9
"""Added to the diagonal in each step, relative to its mean, so that a step exists even for collinear levels. It damps
steps only; the fit converges to the deviance of the model without it."""
_FARTHEST: Final = 30.0
"""Log odds beyond which a probability is 0 or 1 in double precision."""
_SEPARATED: Final = 12.0
"""Log odds beyond which a fit diverges: few data distinguish a probability of 6 in a million from 0."""
_START: Final = 4.0
"""Limit of start coefficients: a step from log odds where probabilities are 0 or 1 makes no progress."""


def _binned(codes: Integers, values: Floats, levels: int) -> Floats:
    """Sum ``values`` per code, along the last axis."""
    rows = values.reshape(-1, len(codes))
    places = codes + levels * np.arange(len(rows))[:, None]
    found = np.bincount(places.ravel(), rows.ravel(), levels * len(rows)).astype(np.float64, copy=False)
    return found.reshape(*values.shape[:-1], levels)


@dataclass(frozen=True, slots=True)
class EffectDesign:
    """Design of a model with one effect per level, on the combinations of levels that occur.

    A model's columns are all levels of its first factor and all but the first level of each other factor. The design
    matrix is never built: its products are sums over combinations that share levels. Arguments may have leading axes,
    which the results have too: draws of a bootstrap are fitted together, since one by one takes several times as long.
    """

    names: tuple[str, ...]
    codes: Integers
    """Number of the level, shape (combinations, factors)."""
    levels: tuple[int, ...]
    """Number of levels per factor."""
    _pairs: dict[tuple[int, int], Integers] = field(default_factory=dict)

    @property
    def all(self) -> tuple[int, ...]:
        """Numbers of all factors."""
        return tuple(range(len(self.names)))

    def without(self, factor: int) -> tuple[int, ...]:
        """Return the numbers of all factors but ``factor``."""
        return tuple(other for other in self.all if other != factor)

    def sums(self, values: Floats, factors: Sequence[int]) -> Floats:
        """Multiply the model's columns with ``values``, one per combination."""
        found = [_binned(self.codes[:, one], values, self.levels[one]) for one in factors]
        return np.concatenate([found[0], *(part[..., 1:] for part in found[1:])], axis=-1)

    def products(self, weights: Floats, factors: Sequence[int]) -> Floats:
        """Multiply the model's columns with each other, weighting each combination."""
        starts = np.cumsum([0, *(self.levels[one] for one in factors)])
        outer = weights.shape[:-1]
        found = np.zeros((*outer, starts[-1], starts[-1]))
        for number, one in enumerate(factors):
            place = np.arange(starts[number], starts[number + 1])
            found[..., place, place] = _binned(self.codes[:, one], weights, self.levels[one])
        for (first, one), (second, other) in combinations(enumerate(factors), 2):
            shape = (self.levels[one], self.levels[other])
            block = _binned(self._pair(one, other), weights, shape[0] * shape[1]).reshape(*outer, *shape)
            rows, columns = slice(starts[first], starts[first + 1]), slice(starts[second], starts[second + 1])
            found[..., rows, columns], found[..., columns, rows] = block, block.swapaxes(-1, -2)
        kept = np.delete(np.arange(starts[-1]), starts[1:-1])
        kept_only: Floats = found[..., kept[:, None], kept]
        return kept_only

    def predicted(self, coefficients: Floats, factors: Sequence[int]) -> Floats:
        """Compute the linear predictor per combination: the sum of its levels' coefficients."""
        found = np.zeros((*coefficients.shape[:-1], len(self.codes)))
        place = 0
        for number, one in enumerate(factors):
            ahead = int(number > 0)  # the first level has no coefficient of its own
            own = np.zeros((*coefficients.shape[:-1], self.levels[one]))
            own[..., ahead:] = coefficients[..., place : place + self.levels[one] - ahead]
            found += own[..., self.codes[:, one]]
            place += self.levels[one] - ahead
        return found

    def rank(self, factors: Sequence[int]) -> int:
        """Compute the rank of the model, including its mean."""
        if not factors:
            return 1
        products = self.products(np.ones(len(self.codes)), factors)
        scale = np.sqrt(np.diag(products))
        return int(np.linalg.matrix_rank(products / np.outer(scale, scale), tol=1e-8, hermitian=True))

    def follows(self, factor: int, other: int) -> bool:
        """Return True if each level of ``other`` occurs with one level of ``factor`` only."""
        return len(np.unique(self._pair(factor, other))) == self.levels[other]

    def _pair(self, one: int, other: int) -> Integers:
        found = self._pairs.get((one, other))
        if found is None:
            found = self.codes[:, one] * self.levels[other] + self.codes[:, other]
            self._pairs[one, other] = found
        return found


@dataclass(frozen=True, slots=True)
class TaskSums:
    """Sums per group: one task and combination of levels. This reduces a million rows to a few."""

    tasks: int
    task: Integers
    """Number of the group's task."""
    combination: Integers
    """Number of the group's combination."""
    count: Floats
    """Rows of the group."""
    total: Floats
    """Sum of the response."""
    squares: Floats
    """Sum of its squares."""

    def summed(self, combinations_: int, times: Floats | None = None) -> tuple[Floats, Floats, Floats]:
        """Sum count and total per combination, and all squares, taking each task ``times`` often.

        Args:
            combinations_: How many there are.
            times: Shape (draws, tasks); None for one draw of each task once.

        Returns:
            Shapes (draws, combinations), (draws, combinations) and (draws,).
        """
        weights = np.ones((1, len(self.count))) if times is None else times[:, self.task]
        count = _binned(self.combination, self.count * weights, combinations_)
        total = _binned(self.combination, self.total * weights, combinations_)
        return count, total, (self.squares * weights).sum(axis=-1)


@dataclass(frozen=True, slots=True)
class LogisticFits:
    """Deviances and coefficients of a logistic model fitted to each draw."""

    deviances: Floats
    """−2 log L of the single rows, shape (draws,)."""
    coefficients: Floats
    """Shape (draws, columns of the model)."""


def fit_logistic(
    design: EffectDesign, factors: Sequence[int], count: Floats, passed: Floats, start: Floats | None = None
) -> LogisticFits:
    """Fit a logistic model to each draw by iteratively reweighted least squares.

    See McCullagh and Nelder, *Generalized Linear Models*, 2nd edition, 1989, section 2.5. A step that makes the fit
    worse is halved. The effect of a level that always or never passes diverges while the deviance converges. There must
    be at least one factor; levels may be collinear. ``count`` and ``passed`` are rows per draw and combination and may
    be 0; ``start`` are coefficients of similar data.
    """
    at = design.sums(np.zeros_like(count), factors)
    if start is not None:
        at[:] = np.clip(start, -_START, _START)
    deviances = _deviances_of(design.predicted(at, factors), count, passed)
    moving = np.arange(len(count))
    for _step in range(_STEPS):
        rows, hits, before = count[moving], passed[moving], deviances[moving]
        chance = expit(np.clip(design.predicted(at[moving], factors), -_FARTHEST, _FARTHEST))
        curvature = design.products(rows * chance * (1 - chance), factors)
        step = _solved(curvature, design.sums(hits - rows * chance, factors))
        worse = np.ones(len(moving), bool)
        after = before.copy()
        for _halving in range(20):
            tried = at[moving[worse]] + step[worse]
            after[worse] = _deviances_of(design.predicted(tried, factors), rows[worse], hits[worse])
            worse = ~(after <= before)
            if not worse.any():
                break
            step[worse] *= 0.5
        better = ~worse
        at[moving[better]] += step[better]
        deviances[moving[better]] = after[better]
        moving = moving[better & (before - after > 1e-8 * (1 + after))]
        if not len(moving):
            break
    return LogisticFits(deviances, at)


def _deviances_of(predictor: Floats, count: Floats, passed: Floats) -> Floats:
    eta = np.clip(predictor, -_FARTHEST, _FARTHEST)
    # Not a dot product: the linear algebra library would start threads for it, which cost more than they save.
    found: Floats = 2 * (count * np.logaddexp(0, eta) - passed * eta).sum(axis=-1)
    return found


def _solved(curvature: Floats, gradient: Floats) -> Floats:
    columns = curvature.shape[-1]
    ridge = _RIDGE * np.maximum(np.trace(curvature, axis1=-2, axis2=-1) / columns, 1e-9)
    solved = np.linalg.solve(curvature + ridge[:, None, None] * np.eye(columns), gradient[..., None])
    return solved[..., 0].astype(np.float64, copy=False)


def residual_squares(
    design: EffectDesign, factors: Sequence[int], count: Floats, total: Floats, squares: float
) -> float:
    """Compute the sum of squared residuals of a linear model with at least one factor; levels may be collinear.

    ``count`` and ``total`` are rows and sum of the response per combination; ``squares`` is the sum over all rows of
    the response squared.
    """
    middle = total.sum() / count.sum()
    moments = design.sums(total - count * middle, factors)
    effects = np.linalg.lstsq(design.products(count, factors), moments, rcond=1e-10)[0]
    return float(max(0.0, squares - count.sum() * middle**2 - moments @ effects))


class _Response:
    """One response over one design, with the shares that its models explain for any weights of tasks."""

    def __init__(self, design: EffectDesign, data: TaskSums, *, binary: bool) -> None:
        self.design = design
        self.data = data
        self.binary = binary
        self._starts: dict[tuple[int, ...], Floats] = {}

    def shares(self) -> Floats:
        """Compute the explained shares of the data; see :meth:`shares_of`, shape (factors + 1, 2)."""
        observed: Floats = self.shares_of(np.ones((1, self.data.tasks)))[0]
        return observed

    def shares_of(self, times: Floats) -> Floats:
        """Compute the explained shares of draws of tasks.

        Args:
            times: How often each draw takes each task, shape (draws, tasks).

        Returns:
            Add one and drop one of each factor, then the share of the full model twice; shape (draws, factors + 1, 2).
            NaN where all responses are equal.
        """
        count, total, squares = self.data.summed(len(self.design.codes), times)
        found = np.full((len(times), len(self.design.names) + 1, 2), np.nan)
        every = self.null_deviances(count, total, squares)
        some = every > 1e-9 * np.maximum(1.0, squares)
        if not self.design.names or not some.any():
            return found
        sums, null = (count[some], total[some], squares[some]), every[some]
        full = self._deviances(self.design.all, *sums)
        shares = np.empty((len(null), *found.shape[1:]))
        shares[:, -1] = (1 - full / null)[:, None]
        for factor in self.design.all:
            shares[:, factor, 0] = 1 - self._deviances((factor,), *sums) / null
            shares[:, factor, 1] = (self._deviances(self.design.without(factor), *sums) - full) / null
        found[some] = np.clip(shares, 0.0, 1.0)
        return found

    def null_deviances(self, count: Floats, total: Floats, squares: Floats) -> Floats:
        """Compute the deviances of the model without factors."""
        return self.group_deviances(count.sum(axis=-1, keepdims=True), total.sum(axis=-1, keepdims=True), squares)

    def group_deviances(self, count: Floats, total: Floats, squares: Floats) -> Floats:
        """Compute the deviances of the model with a mean per group."""
        means = total / np.where(count > 0, count, 1.0)
        if self.binary:
            found: Floats = -2 * (xlogy(total, means) + xlogy(count - total, 1 - means)).sum(axis=-1)
            return found
        residual: Floats = squares - (total * means).sum(axis=-1)
        return residual

    def separated(self) -> bool:
        """Return True if probabilities of the full model diverge to 0 or 1."""
        if not self.binary:
            return False
        count, total, _squares = self.data.summed(len(self.design.codes))
        fits = fit_logistic(self.design, self.design.all, count, total)
        return bool(np.abs(self.design.predicted(fits.coefficients, self.design.all)).max() > _SEPARATED)

    def task_levels(self, factor: int) -> Integers:
        """Encode the task and level of ``factor`` of each group as one number: task × levels + level."""
        level: Integers = self.design.codes[self.data.combination, factor]
        return self.data.task * self.design.levels[factor] + level

    def is_of_tasks(self, factor: int) -> bool:
        """Return True if each task has one level of ``factor`` only."""
        return len(np.unique(self.task_levels(factor))) == self.data.tasks

    def _deviances(self, factors: tuple[int, ...], count: Floats, total: Floats, squares: Floats) -> Floats:
        if not factors:
            return self.null_deviances(count, total, squares)
        if len(factors) == 1:  # the fit is the mean of each level
            codes, levels = self.design.codes[:, factors[0]], self.design.levels[factors[0]]
            return self.group_deviances(_binned(codes, count, levels), _binned(codes, total, levels), squares)
        if not self.binary:
            draws = zip(count, total, squares, strict=True)
            return np.array([residual_squares(self.design, factors, *draw) for draw in draws])
        fits = fit_logistic(self.design, factors, count, total, self._starts.get(factors))
        self._starts.setdefault(factors, fits.coefficients[0])
        return fits.deviances


def permuted_deviances(response: _Response, factor: int, generator: np.random.Generator) -> Floats:
    """Compute the deviance that one factor alone explains, observed and with its levels permuted.

    Results of one problem are correlated, so whole problems are permuted: levels of a factor that is constant within
    problems are permuted over problems; those of any other factor within each problem, keeping the rows of a problem
    and level together.

    Returns:
        The observed value, then one per permutation. Divide by the null deviance for shares.
    """
    data, levels = response.data, response.design.levels[factor]
    pairs, inverse = np.unique(response.task_levels(factor), return_inverse=True)
    count, total = (_binned(inverse, part, len(pairs)) for part in (data.count, data.total))
    task, level = np.divmod(pairs, levels)
    squares = data.squares.sum()
    null = response.null_deviances(count, total, squares)
    over_tasks = response.is_of_tasks(factor)

    def explained(by: Integers) -> Floats:
        return null - response.group_deviances(_binned(by, count, levels), _binned(by, total, levels), squares)

    def permuted() -> Integers:
        if over_tasks:
            return generator.permutation(level)
        within: Integers = level[np.argsort(task + generator.random(len(task)))]
        return within

    number = int(np.clip(_PERMUTED_ROWS / len(pairs), *_PERMUTATIONS))
    return np.array([explained(level), *(explained(permuted()) for _permutation in range(number))])


def attribution(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Compute the shares of correctness and of log speed-up that each factor in ``request.by`` explains.

    Raises:
        UsageError: The problem is named as a factor.
        NothingSelectedError: The tables hold no cell.
    """
    names = request.by or FACTORS
    columns = columns_of(names)
    if _TASK in names:
        raise UsageError(
            "problem cannot be a factor: attribution resamples whole problems", next_step="Use category or level."
        )
    rows = _rows(tables, columns)
    if rows.is_empty():
        raise NothingSelectedError("the tables hold no cell", next_step="Name a folder with results.")
    return [_correctness(rows, names), _speed(rows, names)]


def _factors(number: int) -> list[str]:
    return [f"f{one}" for one in range(number)]


def _rows(tables: Tables, columns: Sequence[str]) -> pl.DataFrame:
    """Read outcomes with one column per factor, ``f0`` and so on; an unknown level is named ``none``."""
    factors = zip(_factors(len(columns)), columns, strict=True)
    return (
        outcomes(tables.cells)
        .select(
            "record",
            "workload",
            _TASK,
            "counted",
            "passed",
            log_of(pl.col("speedup")).alias("log"),
            *(pl.col(column).cast(pl.String).fill_null("none").alias(name) for name, column in factors),
        )
        .collect(engine="streaming")
    )


def _correctness(rows: pl.DataFrame, names: Sequence[str]) -> Answer:
    key = ["record", "workload"] if "workload" in names else ["record"]
    cells = rows.unique(key, keep="any")
    counted = cells.filter("counted").with_columns(y=pl.col("passed").cast(pl.Float64))
    notes = [f"{counted.height} cells count; {cells.height - counted.height} do not judge their candidate."]
    return _answer("correctness", "Share of correctness explained by each factor", counted, names, notes)


def _speed(rows: pl.DataFrame, names: Sequence[str]) -> Answer:
    timed = rows.filter(pl.col("log").is_not_null()).with_columns(y="log")
    untimed = rows.filter(pl.col("passed") & pl.col("log").is_null()).height
    notes = [f"{timed.height} workloads of cells that passed have a speed-up; failures have none and are left out."]
    if untimed:
        notes.append(f"{untimed} passed without a positive, finite speed-up, and are left out.")
    return _answer("speedup", "Share of log speed-up explained by each factor", timed, names, notes)


def _answer(name: str, title: str, rows: pl.DataFrame, names: Sequence[str], notes: list[str]) -> Answer:
    binary = name == "correctness"
    groups = _grouped(rows, len(names))
    levels = [groups[column].n_unique() for column in _factors(len(names))]
    used = [number for number in range(len(names)) if 1 < levels[number] <= _MOST_LEVELS]
    design, data = _prepared(groups, names, used)
    response = _Response(design, data, binary=binary)
    shares = response.shares() if data.tasks else np.full((len(used) + 1, 2), np.nan)
    lines: list[dict[str, Any]] = [
        {"factor": one, "levels": count, "separable": "yes"}
        for one, count in zip(design.names, design.levels, strict=True)
    ]
    lines.append({"factor": ALL_TOGETHER})
    if used and not np.isnan(shares).any():
        generator = np.random.default_rng(_SEED)
        for line, share in zip(lines, shares, strict=True):
            line |= {"add_one": float(share[0]), "drop_one": float(share[1])}
        _add_chance(lines, response, generator)
        notes += _add_intervals(lines, response, shares, generator)
        notes += _add_separable(lines, design)
        if response.separated():
            notes.append(
                "Some combinations of levels always or never pass: their effects are unbounded. Shares are of deviance,"
                " which is bounded."
            )
    elif used:
        notes.append("All values are equal: there is nothing to explain.")
    notes += _unused(groups, names, levels)
    idle = [number for number in range(len(names)) if number not in used]
    for number in idle:
        state = "too many levels" if levels[number] > _MOST_LEVELS else "one level" if levels[number] else "no data"
        lines.insert(-1, {"factor": names[number], "levels": levels[number], "separable": state})
    table = pl.DataFrame(lines, schema=_COLUMNS)
    return Answer(name=name, title=title, table=table, meanings=_meanings(binary=binary), notes=notes)


def _grouped(rows: pl.DataFrame, factors: int) -> pl.DataFrame:
    """Sum up to one row per problem and combination of levels, in a fixed order."""
    return rows.group_by(_TASK, *_factors(factors)).agg(
        pl.len().cast(pl.Float64).alias("count"),
        pl.col("y").sum().alias("total"),
        (pl.col("y") ** 2).sum().alias("squares"),
    ).sort(_TASK, *_factors(factors))  # fmt: skip  # a fixed order makes the random permutations reproducible


def _prepared(groups: pl.DataFrame, names: Sequence[str], used: Sequence[int]) -> tuple[EffectDesign, TaskSums]:
    columns = [f"f{number}" for number in used]
    coded = groups.select((pl.col(column).rank("dense").cast(pl.Int64) - 1).alias(column) for column in columns)
    task = (groups[_TASK].rank("dense").cast(pl.Int64) - 1).to_numpy()
    if columns:
        combination = coded.unique(maintain_order=True).with_row_index("_")
        place = coded.join(combination, on=columns, how="left", maintain_order="left")["_"].cast(pl.Int64).to_numpy()
        codes = combination.select(columns).to_numpy()
    else:
        place, codes = np.zeros(groups.height, np.int64), np.zeros((1, 0), np.int64)
    levels = tuple(int(coded[column].n_unique()) for column in columns)
    design = EffectDesign(tuple(names[number] for number in used), codes, levels)
    sums = (groups[name].to_numpy() for name in ("count", "total", "squares"))
    return design, TaskSums(groups[_TASK].n_unique(), task, place, *sums)


def _add_chance(lines: Sequence[dict[str, Any]], response: _Response, generator: np.random.Generator) -> None:
    """Add the share that each factor explains by chance, and the p value of its permutation test."""
    design = response.design
    null = float(response.null_deviances(*response.data.summed(len(design.codes)))[0])
    for factor in design.all:
        found = permuted_deviances(response, factor, generator)
        # A permutation that changes nothing differs by rounding only, and counts as large.
        as_large = int((found[1:] >= found[0] - 1e-9 * null).sum())
        lines[factor] |= {"by_chance": float(found[1:].mean() / null), "chance_p": (1 + as_large) / len(found)}


def _add_intervals(
    lines: Sequence[dict[str, Any]], response: _Response, shares: Floats, generator: np.random.Generator
) -> Iterator[str]:
    """Add bootstrap intervals; yields notes about them."""
    data, design = response.data, response.design
    draws = int(min(_DRAWS[1], _DRAWN_ROWS / (len(design.codes) * (len(design.names) + 1) + len(data.count) / 4)))
    if data.tasks < 2:
        yield "There is only one problem to resample, so there are no intervals."
        return
    if draws < _DRAWS[0]:
        yield f"{len(design.codes)} combinations of levels are too many for a bootstrap: there are no intervals."
        return
    found = draw_shares(response, draws, generator)
    if len(found) < _DRAWS[0]:
        yield "Most bootstrap draws hold nothing to explain: there are no intervals."
        return
    low, high = bootstrap_interval(shares, found, data.tasks)
    # Thin: constant within problems, and with too few problems per level.
    few = [factor for factor in design.all if data.tasks < _PER_LEVEL * design.levels[factor]]
    thin = [factor for factor in few if response.is_of_tasks(factor)]
    for number, line in enumerate(lines):
        if number in thin or (thin and number == len(design.names)):
            continue
        for column, name in enumerate(("add", "drop")):
            line |= {f"{name}_low": float(low[number, column]), f"{name}_high": float(high[number, column])}
    yield (
        f"Intervals are at 95 %, from {draws} bootstrap draws of {data.tasks} problems, corrected for the bias that"
        " chance adds to every share: where chance explains much, they lie below the share."
    )
    for factor in thin:
        yield (
            f"{design.names[factor]} has {design.levels[factor]} levels over {data.tasks} problems: too few problems"
            " per level for an interval; see by_chance."
        )
    if data.tasks < _FEW_TASKS:
        yield f"{data.tasks} problems are few: these intervals are too narrow."


def draw_shares(response: _Response, draws: int, generator: np.random.Generator) -> Floats:
    """Compute shares of bootstrap draws of problems: (draws, factors + 1, 2), without draws of equal responses."""
    tasks = response.data.tasks
    times = np.array([np.bincount(generator.integers(tasks, size=tasks), minlength=tasks) for _draw in range(draws)])
    parts = math.ceil(draws * len(response.data.count) / _ROWS_AT_ONCE)
    found = np.concatenate([response.shares_of(part) for part in np.array_split(times.astype(np.float64), parts)])
    usable: Floats = found[~np.isnan(found).any(axis=(1, 2))]
    return usable


def bootstrap_interval(shares: Floats, draws: Floats, tasks: int) -> tuple[Floats, Floats]:
    """Compute 95 % bounds: estimate − bias ± t standard deviations of the draws.

    See Davison and Hinkley, *Bootstrap Methods and their Application*, 1997, section 5.2. Computed on the scale of
    Fisher's z = artanh √share, where deviations hardly depend on the share; t has ``tasks`` − 1 degrees of freedom.
    """
    scaled = _fisher(draws)
    middle = 2 * _fisher(shares) - scaled.mean(axis=0)
    few = math.sqrt(tasks / (tasks - 1)) * float(t_quantile(tasks - 1))
    reach = few * scaled.std(axis=0, ddof=1)
    return np.tanh(np.maximum(middle - reach, 0)) ** 2, np.tanh(np.maximum(middle + reach, 0)) ** 2


def _fisher(shares: Floats) -> Floats:
    scaled: Floats = np.arctanh(np.sqrt(np.minimum(shares, 1 - 1e-12)))
    return scaled


def _add_separable(lines: Sequence[dict[str, Any]], design: EffectDesign) -> Iterator[str]:
    """Mark factors that are collinear with others, for which drop one is meaningless; yields notes about them."""
    full = design.rank(design.all)
    for factor in design.all:
        own = full - design.rank(design.without(factor))
        wanted = design.levels[factor] - 1
        if own == wanted:
            continue
        others = [design.names[other] for other in design.without(factor) if design.follows(factor, other)]
        name = design.names[factor]
        if own:
            lines[factor]["separable"] = "partly"
            yield f"{name} is partly separable: {own} of its {wanted} contrasts are independent of the other factors."
            continue
        lines[factor] |= {"separable": "no", "drop_one": None, "drop_low": None, "drop_high": None}
        which = f"{others[0]}, each level of which has one {name}" if others else "the others together"
        yield f"{name} is not separable from {which}: its share may be theirs."


def _unused(groups: pl.DataFrame, names: Sequence[str], levels: Sequence[int]) -> Iterator[str]:
    for number, (name, count) in enumerate(zip(names, levels, strict=True)):
        if count == 1:
            yield f"{name} has one level ({groups[f'f{number}'][0]}), so it explains nothing."
        elif count > _MOST_LEVELS:
            yield f"{name} has {count} levels, more than the limit of {_MOST_LEVELS}: it is left out."


_COLUMNS: Final[dict[str, pl.DataType]] = {
    "factor": pl.String(),
    "levels": pl.Int64(),
    "separable": pl.String(),
    **dict.fromkeys(("add_one", "add_low", "add_high", "by_chance", "chance_p"), pl.Float64()),
    **dict.fromkeys(("drop_one", "drop_low", "drop_high"), pl.Float64()),
}


def _meanings(*, binary: bool) -> dict[str, str]:
    of = "deviance of correctness (McFadden 1974)" if binary else "variance of log speed-up (R²)"
    return {
        "factor": f"the factor; {ALL_TOGETHER}: the model with all factors",
        "levels": "number of its levels",
        "separable": "no: its effects are collinear with those of the other factors",
        "add_one": f"share of the {of} that it explains alone",
        "add_low": "lower bound of its 95 % interval, over problems",
        "add_high": "upper bound",
        "by_chance": "mean share after permuting its levels over whole problems, or within each",
        "chance_p": "p value of the permutation test: (1 + as large) ÷ (1 + permutations)",
        "drop_one": f"share of the {of} that the full model loses without it; null where it is not separable",
        "drop_low": "lower bound of its 95 % interval, over problems",
        "drop_high": "upper bound",
    }
