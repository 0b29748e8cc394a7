"""What correctness and speed-up hang on: the share that category, method, GPU, toolchain and dtype explain.

*Correctness* of a cell is modelled as logit P(passed) = a + one effect per level of each factor; what is explained is
1 − D/D0, deviance over that of a model without factors (McFadden, *Conditional logit analysis of qualitative choice
behavior*, 1974; for yes-or-no data both definitions agree). *Log speed-up* of a workload of a cell that passed is
modelled by least squares with the same effects; what is explained is R² = 1 − SSE/SST.

Each factor has two shares: alone in the model (*add one*), and what the model of all loses without it (*drop one*).
They agree where factors are balanced; where they do not, the factors share what they explain, and nobody can say whose
it is. Only shares are told, no effects: where a level always or never passes its effect is without bound, and the
deviance is not.

More levels explain more by chance, and what happens to one problem hangs together. So each factor's share alone stands
beside what it would be if its levels were dealt to whole problems at random, and intervals come from drawing problems.
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
from kernel_matrix.analysis.quantiles import t_quantile
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.slices import columns_of
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.analysis.timed_sessions import log_of
from kernel_matrix.errors import NothingSelectedError, UsageError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

FACTORS: Final = ("category", "method", "gpu", "toolchain", "dtype")
"""Names of slices that are looked at where a request names none."""
ALL_TOGETHER: Final = "(all together)"
_TASK: Final = "problem"
"""What is drawn and dealt as a whole; as a factor it would leave nothing to draw from."""

_MOST_LEVELS: Final = 200
_DEALS: Final = (20, 999)
"""Fewest and most random dealings of a factor's levels."""
_DEALT_ROWS: Final = 2e6
"""Rows that all dealings of a factor may go through together."""
_DRAWS: Final = (40, 200)
"""Fewest and most drawings of problems: an interval from their mean and deviation needs no more (Efron and Tibshirani,
*An Introduction to the Bootstrap*, 1993, section 6.4)."""
_DRAWN_ROWS: Final = 5e6
"""Combinations that the models of all drawings may go through together."""
_FEW_TASKS: Final = 10
_PER_LEVEL: Final = 3
"""Problems per level of a factor of problems that drawing them needs, on average."""
_SEED: Final = 20260301

_STEPS: Final = 60
_RIDGE: Final = 1e-9
"""Added to the diagonal in each step, relative to its mean, so that levels that cannot be told apart stop no step. It
damps steps only: the deviance that is converged to is that of the model without it."""
_FARTHEST: Final = 30.0
"""Log odds beyond which a chance is 0 or 1 in all but name."""
_SEPARATED: Final = 12.0
"""Log odds beyond which a fit is on its way to infinity: few data tell a chance of 6 in a million from none."""
_START: Final = 4.0
"""Coefficients of other data to start from are no larger, since a step from where chances are 0 or 1 leads nowhere."""


def _binned(codes: Integers, values: Floats, levels: int) -> Floats:
    """Sum of ``values`` per code."""
    return np.bincount(codes, values, levels).astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True)
class EffectDesign:
    """The combinations of levels that there are, and the sums over them that a model of effects per level needs.

    A model's columns are all levels of its first factor and all but the first level of each other one. None is ever
    written out: their products are sums over combinations that share levels.
    """

    names: tuple[str, ...]
    codes: Integers
    """(combinations, factors): number of the level."""
    levels: tuple[int, ...]
    """Per factor."""
    _pairs: dict[tuple[int, int], Integers] = field(default_factory=dict)

    @property
    def all(self) -> tuple[int, ...]:
        """Numbers of all factors."""
        return tuple(range(len(self.names)))

    def without(self, factor: int) -> tuple[int, ...]:
        """Numbers of all factors but ``factor``."""
        return tuple(other for other in self.all if other != factor)

    def sums(self, values: Floats, factors: Sequence[int]) -> Floats:
        """Columns times ``values``, one per combination."""
        found = [_binned(self.codes[:, one], values, self.levels[one]) for one in factors]
        return np.concatenate([found[0], *(part[1:] for part in found[1:])])

    def products(self, weights: Floats, factors: Sequence[int]) -> Floats:
        """Columns times columns, each combination with its weight."""
        starts = np.cumsum([0, *(self.levels[one] for one in factors)])
        found = np.zeros((starts[-1], starts[-1]))
        for number, one in enumerate(factors):
            place = slice(starts[number], starts[number + 1])
            np.fill_diagonal(found[place, place], _binned(self.codes[:, one], weights, self.levels[one]))
        for (first, one), (second, other) in combinations(enumerate(factors), 2):
            shape = (self.levels[one], self.levels[other])
            block = _binned(self._pair(one, other), weights, shape[0] * shape[1]).reshape(shape)
            rows, columns = slice(starts[first], starts[first + 1]), slice(starts[second], starts[second + 1])
            found[rows, columns], found[columns, rows] = block, block.T
        kept = np.delete(np.arange(starts[-1]), starts[1:-1])
        kept_only: Floats = found[np.ix_(kept, kept)]
        return kept_only

    def predicted(self, coefficients: Floats, factors: Sequence[int]) -> Floats:
        """Per combination, the sum of its levels' coefficients."""
        found = np.zeros(len(self.codes))
        place = 0
        for number, one in enumerate(factors):
            own = coefficients[place : place + self.levels[one] - bool(number)]
            found += (np.concatenate([[0.0], own]) if number else own)[self.codes[:, one]]
            place += len(own)
        return found

    def rank(self, factors: Sequence[int]) -> int:
        """Effects of the model, the mean's included, that can be told apart."""
        if not factors:
            return 1
        products = self.products(np.ones(len(self.codes)), factors)
        scale = np.sqrt(np.diag(products))
        return int(np.linalg.matrix_rank(products / np.outer(scale, scale), tol=1e-8, hermitian=True))

    def follows(self, factor: int, other: int) -> bool:
        """Whether each level of ``other`` comes with one level of ``factor`` only."""
        return len(np.unique(self._pair(factor, other))) == self.levels[other]

    def _pair(self, one: int, other: int) -> Integers:
        found = self._pairs.get((one, other))
        if found is None:
            found = self.codes[:, one] * self.levels[other] + self.codes[:, other]
            self._pairs[one, other] = found
        return found


@dataclass(frozen=True, slots=True)
class TaskSums:
    """Sums per task and combination of levels; a million rows become few."""

    tasks: int
    task: Integers
    """Per group: number of its task."""
    combination: Integers
    """Per group: number of its combination."""
    count: Floats
    """Per group: rows."""
    total: Floats
    """Per group: sum of the response."""
    squares: Floats
    """Per group: sum of its squares."""

    def summed(self, combinations_: int, times: Floats | None = None) -> tuple[Floats, Floats, float]:
        """Count and total per combination, and the sum of squares, with each task taken so many ``times``."""
        weights = np.ones(len(self.count)) if times is None else times[self.task]
        count = _binned(self.combination, self.count * weights, combinations_)
        total = _binned(self.combination, self.total * weights, combinations_)
        return count, total, float((self.squares * weights).sum())


@dataclass(frozen=True, slots=True)
class LogisticFit:
    """What a logistic model leaves unexplained, and the coefficients it came to."""

    deviance: float
    """−2 log L of the single rows."""
    coefficients: Floats


def logistic(
    design: EffectDesign, factors: Sequence[int], count: Floats, passed: Floats, start: Floats | None = None
) -> LogisticFit:
    """Fit a logistic model by iteratively reweighted least squares.

    (McCullagh and Nelder, *Generalized Linear Models*, 2nd edition, 1989, section 2.5.) A step that makes the fit worse
    is halved. Where a level always or never passes its effect runs away while the deviance converges.

    :param factors: numbers of at least one factor of ``design``; levels may be impossible to tell apart.
    :param count: rows per combination, may be 0.
    :param passed: of them, those that passed.
    :param start: coefficients of about the same data.
    """
    at = design.sums(np.zeros(len(count)), factors) if start is None else np.clip(start, -_START, _START)
    deviance = _deviance_of(design.predicted(at, factors), count, passed)
    for _step in range(_STEPS):
        chance = expit(np.clip(design.predicted(at, factors), -_FARTHEST, _FARTHEST))
        curvature = design.products(count * chance * (1 - chance), factors)
        step = _solved(curvature, design.sums(passed - count * chance, factors))
        before = deviance
        for _halving in range(20):
            deviance = _deviance_of(design.predicted(at + step, factors), count, passed)
            if deviance <= before:
                break
            step *= 0.5
        else:
            return LogisticFit(before, at)
        at = at + step
        if before - deviance <= 1e-8 * (1 + deviance):
            break
    return LogisticFit(deviance, at)


def _deviance_of(predictor: Floats, count: Floats, passed: Floats) -> float:
    eta = np.clip(predictor, -_FARTHEST, _FARTHEST)
    # Not as products of vectors: a linear algebra library starts threads for those, which wait for each other.
    return float(2 * (count * np.logaddexp(0, eta) - passed * eta).sum())


def _solved(curvature: Floats, gradient: Floats) -> Floats:
    ridge = _RIDGE * max(float(np.trace(curvature)) / len(curvature), 1e-9)
    return np.linalg.solve(curvature + ridge * np.eye(len(curvature)), gradient).astype(np.float64, copy=False)


def least_squares(design: EffectDesign, factors: Sequence[int], count: Floats, total: Floats, squares: float) -> float:
    """Sum of squared residuals of a linear model.

    :param factors: numbers of at least one factor of ``design``; levels may be impossible to tell apart.
    :param count: rows per combination, may be 0.
    :param total: sum of the response per combination.
    :param squares: sum of its squares over all rows.
    """
    middle = total.sum() / count.sum()
    moments = design.sums(total - count * middle, factors)
    effects = np.linalg.lstsq(design.products(count, factors), moments, rcond=1e-10)[0]
    return float(max(0.0, squares - count.sum() * middle**2 - moments @ effects))


class _Response:
    """One response over one design: what its models explain, for any weights of tasks."""

    def __init__(self, design: EffectDesign, data: TaskSums, *, binary: bool) -> None:
        self.design = design
        self.data = data
        self.binary = binary
        self._starts: dict[tuple[int, ...], Floats] = {}

    def shares(self, times: Floats | None = None) -> Floats:
        """Add one and drop one of each factor, then the share of all twice: (factors + 1, 2).

        :param times: how often each task is taken; null: once.
        :return: NaN where all responses are the same.
        """
        sums = self.data.summed(len(self.design.codes), times)
        found = np.full((len(self.design.names) + 1, 2), np.nan)
        nothing = self.nothing(*sums)
        if not self.design.names or nothing <= 1e-9 * max(1.0, sums[2]):
            return found
        full = self._left(self.design.all, *sums)
        found[-1] = 1 - full / nothing
        for factor in self.design.all:
            found[factor, 0] = 1 - self._left((factor,), *sums) / nothing
            found[factor, 1] = (self._left(self.design.without(factor), *sums) - full) / nothing
        clipped: Floats = np.clip(found, 0.0, 1.0)
        return clipped

    def nothing(self, count: Floats, total: Floats, squares: float) -> float:
        """Deviance of the model without factors."""
        return self.unexplained(count.sum(keepdims=True), total.sum(keepdims=True), squares)

    def unexplained(self, count: Floats, total: Floats, squares: float) -> float:
        """Deviance where every group has a mean of its own."""
        full = count > 0
        count, total = count[full], total[full]
        if self.binary:
            return float(-2 * (xlogy(total, total / count).sum() + xlogy(count - total, 1 - total / count).sum()))
        return float(squares - (total**2 / count).sum())

    def separated(self) -> bool:
        """Whether chances of the model of all run to 0 or 1, so that no effect could be told."""
        if not self.binary:
            return False
        count, total, _squares = self.data.summed(len(self.design.codes))
        fit = logistic(self.design, self.design.all, count, total)
        return bool(np.abs(self.design.predicted(fit.coefficients, self.design.all)).max() > _SEPARATED)

    def task_levels(self, factor: int) -> Integers:
        """Per group of the data, a number for its task and its level of ``factor``: task × levels + level."""
        level: Integers = self.design.codes[self.data.combination, factor]
        return self.data.task * self.design.levels[factor] + level

    def is_of_tasks(self, factor: int) -> bool:
        """Whether each task has one level of ``factor`` only."""
        return len(np.unique(self.task_levels(factor))) == self.data.tasks

    def _left(self, factors: tuple[int, ...], count: Floats, total: Floats, squares: float) -> float:
        """Deviance of the model of ``factors``."""
        if not factors:
            return self.nothing(count, total, squares)
        if len(factors) == 1:  # the means of its levels fit it
            codes, levels = self.design.codes[:, factors[0]], self.design.levels[factors[0]]
            return self.unexplained(_binned(codes, count, levels), _binned(codes, total, levels), squares)
        if not self.binary:
            return least_squares(self.design, factors, count, total, squares)
        fit = logistic(self.design, factors, count, total, self._starts.get(factors))
        self._starts.setdefault(factors, fit.coefficients)
        return fit.deviance


def by_chance(response: _Response, factor: int, generator: np.random.Generator) -> Floats:
    """Deviance explained by one factor alone, observed and then with its levels dealt at random.

    What happens to one problem hangs together, so that only whole problems are dealt: a factor that every problem has
    one level of is dealt over problems; any other one is dealt within each, all rows of a problem and level together.

    :param factor: number of the factor.
    :return: observed, then one per dealing, as many as there is time for; to be divided by the deviance without
        factors.
    """
    data, levels = response.data, response.design.levels[factor]
    pairs, inverse = np.unique(response.task_levels(factor), return_inverse=True)
    count, total = (_binned(inverse, part, len(pairs)) for part in (data.count, data.total))
    task, level = np.divmod(pairs, levels)
    squares = float(data.squares.sum())
    nothing = response.nothing(count, total, squares)
    over_tasks = response.is_of_tasks(factor)

    def explained(dealt: Integers) -> float:
        return nothing - response.unexplained(_binned(dealt, count, levels), _binned(dealt, total, levels), squares)

    def dealt() -> Integers:
        if over_tasks:
            return generator.permutation(level)
        within: Integers = level[np.argsort(task + generator.random(len(task)))]
        return within

    deals = int(np.clip(_DEALT_ROWS / len(pairs), *_DEALS))
    return np.array([explained(level), *(explained(dealt()) for _deal in range(deals))])


def attribution(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Shares of correctness and of log speed-up that each factor explains.

    :param request: ``by`` names the factors; none: :data:`FACTORS`.
    :raises UsageError: where the problem is a factor, so that nothing is left to draw.
    :raises NothingSelectedError: where the tables hold no cell.
    """
    names = request.by or FACTORS
    columns = columns_of(names)
    if _TASK in names:
        raise UsageError(
            "problem is what attribution draws and deals as a whole, not a factor", next_step="Use category or level."
        )
    rows = _rows(tables, columns)
    if rows.is_empty():
        raise NothingSelectedError("the tables hold no cell", next_step="Name a folder with results.")
    return [_correctness(rows, names), _speed(rows, names)]


def _factors(number: int) -> list[str]:
    return [f"f{one}" for one in range(number)]


def _rows(tables: Tables, columns: Sequence[str]) -> pl.DataFrame:
    """Outcomes with one column per factor, ``f0`` and so on; a level that is unknown is called ``none``."""
    factors = zip(_factors(len(columns)), columns, strict=True)
    return (
        outcomes(tables.cells)
        .select(
            *("record", "workload", _TASK, "counted", "passed"),
            log_of(pl.col("speedup")).alias("log"),
            *(pl.col(column).cast(pl.String).fill_null("none").alias(name) for name, column in factors),
        )
        .collect(engine="streaming")
    )


def _correctness(rows: pl.DataFrame, names: Sequence[str]) -> Answer:
    key = ["record", "workload"] if "workload" in names else ["record"]
    cells = rows.unique(key, keep="any")
    counted = cells.filter("counted").with_columns(y=pl.col("passed").cast(pl.Float64))
    notes = [f"{counted.height} cells count; {cells.height - counted.height} say nothing about a candidate."]
    return _answer("correctness", "What correctness hangs on", counted, names, notes)


def _speed(rows: pl.DataFrame, names: Sequence[str]) -> Answer:
    timed = rows.filter(pl.col("log").is_not_null()).with_columns(y="log")
    untimed = rows.filter(pl.col("passed") & pl.col("log").is_null()).height
    notes = [f"{timed.height} workloads of cells that passed have a speed-up; failures have none and are not in here."]
    if untimed:
        notes.append(f"{untimed} passed without a speed-up that is a positive number, and are left out.")
    return _answer("speedup", "What log speed-up hangs on", timed, names, notes)


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
                "Some combinations of levels pass always or never: their effects have no bound. Deviance has one, and"
                " shares are of deviance."
            )
    elif used:
        notes.append("All of them are the same: there is nothing to explain.")
    notes += _unused(groups, names, levels)
    idle = [number for number in range(len(names)) if number not in used]
    for number in idle:
        state = "too many levels" if levels[number] > _MOST_LEVELS else "one level" if levels[number] else "no data"
        lines.insert(-1, {"factor": names[number], "levels": levels[number], "separable": state})
    table = pl.DataFrame(lines, schema=_COLUMNS)
    return Answer(name=name, title=title, table=table, meanings=_meanings(binary=binary), notes=notes)


def _grouped(rows: pl.DataFrame, factors: int) -> pl.DataFrame:
    """One row per problem and combination of levels."""
    return rows.group_by(_TASK, *_factors(factors)).agg(
        pl.len().cast(pl.Float64).alias("count"),
        pl.col("y").sum().alias("total"),
        (pl.col("y") ** 2).sum().alias("squares"),
    ).sort(_TASK, *_factors(factors))  # fmt: skip  # the same order every time, so that random numbers fall alike


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
    """What each factor would explain by chance, and how often chance explains as much."""
    design = response.design
    nothing = response.nothing(*response.data.summed(len(design.codes)))
    for factor in design.all:
        found = by_chance(response, factor, generator)
        # Dealings that change nothing differ in the last digits only, and are as large as what was seen.
        as_large = int((found[1:] >= found[0] - 1e-9 * nothing).sum())
        lines[factor] |= {"by_chance": float(found[1:].mean() / nothing), "chance_p": (1 + as_large) / len(found)}


def _add_intervals(
    lines: Sequence[dict[str, Any]], response: _Response, shares: Floats, generator: np.random.Generator
) -> Iterator[str]:
    """Intervals from drawing problems, and what has to be said of them."""
    data, design = response.data, response.design
    draws = int(min(_DRAWS[1], _DRAWN_ROWS / (len(design.codes) * (len(design.names) + 1) + len(data.count) / 4)))
    if data.tasks < 2:
        yield "There is one problem: nothing to draw from, and no interval."
        return
    if draws < _DRAWS[0]:
        yield f"{len(design.codes)} combinations of levels are too many to fit again and again: there are no intervals."
        return
    found = drawn(response, draws, generator)
    if len(found) < _DRAWS[0]:
        yield "Most drawings of problems hold nothing to explain: there are no intervals."
        return
    low, high = interval(shares, found, data.tasks)
    thin = [factor for factor in design.all if _is_thin(response, factor)]
    for number, line in enumerate(lines):
        if number in thin or (thin and number == len(design.names)):
            continue
        for column, name in enumerate(("add", "drop")):
            line |= {f"{name}_low": float(low[number, column]), f"{name}_high": float(high[number, column])}
    yield (
        f"Intervals are at 95 %, from {draws} drawings of {data.tasks} problems, with the bias taken off that"
        " chance adds to every share: where chance explains much, they lie below the share."
    )
    for factor in thin:
        yield (
            f"{design.names[factor]} has {design.levels[factor]} levels over {data.tasks} problems: drawing so few says"
            " nothing of its levels, and there is no interval; see by_chance."
        )
    if data.tasks < _FEW_TASKS:
        yield f"{data.tasks} problems are few: such intervals are too narrow."


def drawn(response: _Response, draws: int, generator: np.random.Generator) -> Floats:
    """Shares with the problems drawn anew, with putting back: (draws, factors + 1, 2), less where all were the same."""
    tasks = response.data.tasks
    every = np.ones(tasks)
    found = np.array(
        [response.shares(_binned(generator.integers(tasks, size=tasks), every, tasks)) for _draw in range(draws)]
    )
    usable: Floats = found[~np.isnan(found).any(axis=(1, 2))]
    return usable


def interval(shares: Floats, draws: Floats, tasks: int) -> tuple[Floats, Floats]:
    """Ends of the 95 % intervals: estimate − bias ± t standard deviations of the draws.

    (Davison and Hinkley, *Bootstrap Methods and their Application*, 1997, section 5.2.) On the scale of Fisher's
    z = artanh √share, where deviations hardly depend on the share; t and the deviation are those of so few ``tasks``.
    """
    scaled = _fisher(draws)
    middle = 2 * _fisher(shares) - scaled.mean(axis=0)
    few = math.sqrt(tasks / (tasks - 1)) * float(t_quantile(tasks - 1))
    reach = few * scaled.std(axis=0, ddof=1)
    return np.tanh(np.maximum(middle - reach, 0)) ** 2, np.tanh(np.maximum(middle + reach, 0)) ** 2


def _fisher(shares: Floats) -> Floats:
    scaled: Floats = np.arctanh(np.sqrt(np.minimum(shares, 1 - 1e-12)))
    return scaled


def _is_thin(response: _Response, factor: int) -> bool:
    """Whether a factor that problems have one level of has hardly more problems than levels."""
    return response.is_of_tasks(factor) and response.data.tasks < _PER_LEVEL * response.design.levels[factor]


def _add_separable(lines: Sequence[dict[str, Any]], design: EffectDesign) -> Iterator[str]:
    """Which factors' effects can be told from the others'; drop one says nothing of those that cannot."""
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
            yield f"{name} is separable in part: {own} of its {wanted} differences can be told from the other factors."
            continue
        lines[factor] |= {"separable": "no", "drop_one": None, "drop_low": None, "drop_high": None}
        which = f"{others[0]}, each level of which has one {name}" if others else "the others together"
        yield f"{name} is not separable from {which}: what it explains may be theirs."


def _unused(groups: pl.DataFrame, names: Sequence[str], levels: Sequence[int]) -> Iterator[str]:
    for number, (name, count) in enumerate(zip(names, levels, strict=True)):
        if count == 1:
            yield f"{name} has one level ({groups[f'f{number}'][0]}): nothing can be said of it."
        elif count > _MOST_LEVELS:
            yield f"{name} has {count} levels, more than the {_MOST_LEVELS} that a model has room for: it is left out."


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
        "factor": f"what is looked at; {ALL_TOGETHER}: the model of all of them",
        "levels": "how many it has",
        "separable": "whether its effects can be told from those of the others",
        "add_one": f"share of the {of} that it explains alone",
        "add_low": "lower end of its 95 % interval, over problems",
        "add_high": "upper end",
        "by_chance": "mean share with its levels dealt to whole problems, or within each, at random",
        "chance_p": "how often chance explains as much: (1 + as large) ÷ (1 + dealings)",
        "drop_one": f"share of the {of} that the model of all loses without it; null where it is not separable",
        "drop_low": "lower end of its 95 % interval, over problems",
        "drop_high": "upper end",
    }
