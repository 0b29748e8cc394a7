"""Rank agreement: the order of candidates on one GPU against another, and the regret of reusing a winner.

Candidates are compared by their times within one problem, dtype, workload and toolchain (toolchains together where
each GPU has only one). All uncertainty comes from the standard errors of :mod:`kernel_matrix.analysis.standings`; how
far a measurement agrees with a repetition of itself is in :mod:`kernel_matrix.analysis.repetitions`. Where the noise of
a time is unknown, two candidates are tied if they differ by no more than the margin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from kernel_matrix.analysis.fastest import SURE, NoisyTimes, fastest
from kernel_matrix.analysis.parallel import map_threads
from kernel_matrix.analysis.quantiles import normal_quantile
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.repetitions import (
    Differences,
    differences,
    normal_size,
    repeated_agreement,
    repeated_winners,
)
from kernel_matrix.analysis.standings import (
    Floats,
    FoldedTable,
    Places,
    Standing,
    Truths,
    chosen_gpus,
    fold,
    one_toolchain_per_gpu,
    slice_columns,
    standings,
)
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import UsageError

MOST_RIVALS: Final = 50
"""Candidates of one group whose pairs are ordered; of more, a random subset of this size."""

_GROUP: Final = ("problem", "ranks", "dtype", "workload")
_NEEDED: Final = (*_GROUP, "toolchain", "gpu", "candidate", "standing", "candidate_ns", "log_error", "log_degrees")
"""Columns of standings that are read, beside those of slices."""
_AT_ONCE: Final = 50_000
"""Pairs of candidates that are ordered together: their values stay in the cache of a processor."""
_SEED: Final = 20_160_907
"""Fixed, so that the same tables give the same answer."""


@dataclass(frozen=True, slots=True)
class _Field:
    """Candidates × GPUs, sorted so that the rows of each group are contiguous."""

    wide: FoldedTable
    """Folded by group and candidate."""
    start: Places
    """First row of each group."""
    group: Places
    """Group of each row."""


@dataclass(frozen=True, slots=True)
class _Side:
    """The candidates on one GPU."""

    log_ns: Floats
    """Log of the time in ns; NaN where nothing passed and was timed."""
    variance: Floats
    """Variance of ``log_ns``; NaN where it is unknown."""
    degrees: Floats
    """Degrees of freedom of ``variance``."""
    failed: Truths
    order: Places
    """Rows of each group by their times."""


def ranks(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Answer ``ranks``, one row per pair of GPUs, and ``regret``, one row per GPU and GPU its winners are reused on.

    In ``request``, ``platforms`` chooses GPUs, ``margin`` is for ties without intervals, and ``by`` slices both tables.

    Raises:
        NothingSelectedError: No cell is on one of the platforms.
        UsageError: A slice separates GPUs, or candidates of a problem.
    """
    by = _slices(request)
    found = standings(tables.cells)
    gpus, nameless = chosen_gpus(found.table, request.platforms)
    here = found.table.select(list(dict.fromkeys((*_NEEDED, *by)))).filter(pl.col("gpu").is_in(gpus))
    group = _GROUP if one_toolchain_per_gpu(here) else (*_GROUP, "toolchain")
    rivals = here.filter(pl.col("candidate").n_unique().over(group) > 1)
    field, facts = _field(rivals, gpus, group), _facts(rivals, group, by)
    pairs = _pairs(field)
    notes = [*found.notes, *nameless, *_notes(field, facts, gpus, request), *_left_out(pairs.too_large)]
    platforms = _platforms(field, pairs, request.margin)
    notes += _without_order(platforms, np.arange(facts.height))
    rows, costs = _compared(field, facts, pairs, platforms, list(_slice_members(facts, by)))
    label_schema = {name: facts.schema[name] for name in by}
    return [
        Answer(
            name="ranks",
            title="Agreement of GPUs on the order of candidates",
            table=pl.DataFrame(rows, schema={**label_schema, **_RANKS}),
            meanings=_RANKS_MEANINGS,
            notes=notes,
        ),
        Answer(
            name="regret",
            title="Regret of using the fastest candidate of one GPU on another",
            table=pl.DataFrame(costs, schema={**label_schema, **_REGRET}),
            meanings=_REGRET_MEANINGS,
        ),
    ]


def _slices(request: QuestionOptions) -> list[str]:
    columns = slice_columns(request.by, "ranks")
    wrong = {"gpu", "candidate", "language", "origin_method", "origin_model", "origin_round"} & set(columns)
    if wrong:
        name = next(name for name, column in zip(request.by, columns, strict=True) if column in wrong)
        raise UsageError(
            f"ranks compares candidates and GPUs and cannot be sliced by {name!r}",
            next_step="Slice by category, level, source, problem, dtype or workload.",
        )
    return columns


def _field(table: pl.DataFrame, gpus: Sequence[str], group: Sequence[str]) -> _Field:
    wide = fold(table, "gpu", gpus, [*group, "candidate"])
    new = wide.keys.select(pl.struct(group).rle_id()).to_series().to_numpy().astype(np.intp)
    return _Field(wide, np.flatnonzero(np.diff(new, prepend=-1)), new)


def _facts(table: pl.DataFrame, group: Sequence[str], by: Sequence[str]) -> pl.DataFrame:
    """Make one row per group, in the order of a field's groups: its keys and its slices."""
    further = [name for name in by if name not in group]
    return table.group_by(group).agg(pl.col(name).first() for name in further).sort(group)


def _slice_members(facts: pl.DataFrame, by: Sequence[str]) -> Iterator[tuple[Mapping[str, Any], Places]]:
    """Yield the values and the groups of each slice."""
    if not by:
        yield {}, np.arange(facts.height)
        return
    numbered = facts.with_row_index("_group").sort([*by, "_group"])
    for values, part in numbered.group_by(by, maintain_order=True):
        yield dict(zip(by, values, strict=True)), part["_group"].to_numpy().astype(np.intp)


def _sides(field: _Field) -> list[_Side]:
    """Extract the candidates on each GPU."""
    wide = field.wide
    log_ns, failed = np.log(wide.of(wide.table["candidate_ns"])), wide.stands(Standing.FAILED)
    error, degrees = wide.of(wide.table["log_error"]), wide.of(wide.table["log_degrees"])
    columns = (np.ascontiguousarray(each.T) for each in (log_ns, error**2, degrees, failed))
    return [
        _Side(time, variance, of_variance, fails, order=np.lexsort((time, field.group)))
        for time, variance, of_variance, fails in zip(*columns, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of candidates of one group; groups of one size are neighbours."""

    first: Places
    """Row of a candidate of each pair."""
    second: Places
    """Row of the other."""
    blocks: Sequence[tuple[Places, int]]
    """Groups of one size, in the order of their pairs, and the number of pairs that each of them has."""
    too_large: int
    """Groups of which only some candidates are in pairs."""

    def total(self, one: Floats, two: Floats) -> Floats:
        """Sum the products of two values of pairs per group."""
        sums, start = np.zeros(sum(groups.size for groups, _ in self.blocks)), 0
        for groups, count in self.blocks:
            part = slice(start, start := start + groups.size * count)
            sums[groups] = np.einsum("ij,ij->i", one[part].reshape(-1, count), two[part].reshape(-1, count))
        return sums


def _pairs(field: _Field) -> _Pairs:
    """Pair the candidates of each group."""
    size = np.diff(field.start, append=len(field.group))
    shuffled = np.random.default_rng(_SEED).random(len(field.group))
    order = np.lexsort((shuffled, field.group))
    large = int((size > MOST_RIVALS).sum())
    size = np.minimum(size, MOST_RIVALS)
    first, second, blocks = [np.empty(0, np.intp)], [np.empty(0, np.intp)], []
    for count in np.unique(size):
        one, two = np.triu_indices(count, 1)
        groups = np.flatnonzero(size == count)
        starts = field.start[groups, None]
        first.append(order[(starts + one).ravel()])
        second.append(order[(starts + two).ravel()])
        blocks.append((groups, one.size))
    return _Pairs(np.concatenate(first), np.concatenate(second), blocks, large)


def _ordered(side: _Side, pairs: _Pairs, margin: float) -> _Order:
    """Order the candidates of each pair on one GPU."""
    steps = np.arange(0, pairs.first.size, _AT_ONCE)[1:]
    parts = zip(np.split(pairs.first, steps), np.split(pairs.second, steps), strict=True)
    columns = zip(*(_order_columns(side, first, second, margin) for first, second in parts), strict=True)
    return _Order(*(np.concatenate(column) for column in columns))


def _order_columns(side: _Side, first: Places, second: Places, margin: float) -> tuple[Floats, ...]:
    """Compute the fields of :class:`_Order` for some pairs."""
    difference = side.log_ns[first] - side.log_ns[second]
    with np.errstate(divide="ignore", invalid="ignore"):
        variance, parts = (each[first] + each[second] for each in (side.variance, side.variance**2 / side.degrees))
        size = normal_size(np.abs(difference) / np.sqrt(variance), variance**2 / parts)
    known, timed = ~np.isnan(size), ~np.isnan(difference)
    beyond = np.abs(difference) > np.log1p(margin)
    signs = np.where(known | beyond, np.sign(difference), 0)
    apart = np.where(known, size > normal_quantile(), beyond)
    exact = (_exact(each) for each in (timed, known, signs != 0, signs, apart, signs * apart))
    return (*exact, timed.astype(np.float64), np.where(known, repeated_agreement(size), 0.0))


def _exact(values: Floats | Truths) -> Floats:
    """Convert values that are 0, 1 or −1 to 32 bits, in which their sums are exact up to 2²⁴."""
    small: Floats = values.astype(np.float32)
    return small


@dataclass(frozen=True, slots=True)
class _Order:
    """Order of pairs of candidates on one GPU; all values are 0 if one of the two is missing."""

    timed: Floats
    """1 if both were timed."""
    known: Floats
    """1 if their noise is known too."""
    ordered: Floats
    """1 if they are not tied."""
    signs: Floats
    """−1 if the first is faster, 1 if it is slower, 0 if they are tied."""
    apart: Floats
    """1 if they differ by more than noise."""
    signs_apart: Floats
    """``signs`` of those that do; 0 for others."""
    timed_64: Floats
    """``timed`` in the width of ``again``, so that it need not be converted for each pair of GPUs."""
    again: Floats
    """Estimated agreement with a repetition of the measurement; 0 where the noise is unknown."""


@dataclass(frozen=True, slots=True)
class _Taus:
    """Tau-b per group (NaN where one side ties all pairs), and sums over pairs per group."""

    tau: Floats
    pairs: Floats
    tied: Sequence[Floats]
    """Pairs that noise does not tell apart, on each GPU."""
    apart: Floats
    """Pairs that are apart on both."""
    agreeing: Floats
    """Of those, the number with the same order, less that with the opposite one."""
    again: Sequence[Floats]
    """Agreement of each GPU with a repetition of itself; NaN where unknown."""

    def summary(self, groups: Places) -> dict[str, Any]:
        """Summarise tau over ``groups``, in the columns of :data:`_RANKS`."""
        apart = float(self.apart[groups].sum())
        return {
            "groups": int((self.pairs[groups] > 0).sum()),
            "with_tau": int((~np.isnan(self.tau[groups])).sum()),
            "tau": _mean(self.tau[groups]),
            "pairs": int(self.pairs[groups].sum()),
            "tied": int(self.tied[0][groups].sum()),
            "tied_other": int(self.tied[1][groups].sum()),
            "apart": int(apart),
            "tau_apart": float(self.agreeing[groups].sum()) / apart if apart else None,
        }


def _taus(pairs: _Pairs, one: _Order, two: _Order) -> _Taus:
    """Compute Kendall's tau-b per group: Σ aᵢⱼbᵢⱼ ÷ √(Σ aᵢⱼ² Σ bᵢⱼ²) over pairs i < j, with a and b in −1, 0, 1.

    Kendall, *The treatment of ties in ranking problems*, Biometrika 33, 1945. This form (Daniels, Biometrika 33, 1944)
    needs no ranks, which ties within a margin, being not transitive, do not give.
    """
    total, sides = pairs.total, ((one, two), (two, one))
    count = total(one.timed, two.timed)
    ordered, other_ordered = (total(side.ordered, other.timed) for side, other in sides)
    scale = np.sqrt(ordered * other_ordered)
    tau = np.divide(total(one.signs, two.signs), scale, out=np.full(count.size, np.nan), where=scale > 0)
    again = [
        np.divide(
            total(side.again, other.timed_64),
            count,
            out=np.full(count.size, np.nan),
            where=(total(side.known, other.timed) == count) & (count > 0),
        )
        for side, other in sides
    ]
    tied = [count - total(side.apart, other.timed) for side, other in sides]
    agreeing = total(one.signs_apart, two.signs_apart)
    return _Taus(tau, count, tied, total(one.apart, two.apart), agreeing, again)


@dataclass(frozen=True, slots=True)
class _Moved:
    """Result of each group's winner on one side when it runs on the other."""

    same: Floats
    """1 if it is the winner there too, else 0; NaN without a winner on both sides."""
    regret: Floats
    """Logarithm of its time there ÷ that of the best there, at least 0; NaN without a time."""
    error: Floats
    """Standard error of it; 0 where it is the best for sure, NaN where the noise is unknown."""
    degrees: Floats
    """Degrees of freedom of ``error``."""
    fails: Truths
    """It fails there by its own fault."""

    def agreement(self, groups: Places) -> dict[str, Any]:
        """Summarise agreement on the winner over ``groups``, in the columns of :data:`_RANKS`."""
        return {"winners": int((~np.isnan(self.same[groups])).sum()), "top1": _mean(self.same[groups])}


def _moved(field: _Field, origin: _Side, target: _Side) -> _Moved:
    """Take the fastest candidate of ``origin`` to ``target``, among those with a result on both."""
    answered = ~np.isnan(target.log_ns) | target.failed
    compared = np.where(~np.isnan(origin.log_ns) | origin.failed, target.log_ns, np.nan)
    winner, has_winner = _fastest(field, np.where(answered, origin.log_ns, np.nan))
    other, has_other = _fastest(field, compared)
    both = has_winner & has_other
    times = NoisyTimes(compared, target.variance, target.degrees)
    found = fastest(times, field.group, of=winner, order=target.order)
    behind, error = found.behind[winner], np.sqrt(found.variance[winner])
    alone = np.isnan(behind)
    sure = alone | (behind < -SURE * np.where(np.isnan(error), 0.0, error))
    timed = both & ~np.isnan(compared[winner])
    return _Moved(
        same=np.where(both, winner == other, np.nan),
        regret=np.where(timed, np.where(sure, 0.0, np.maximum(behind, 0.0)), np.nan),
        error=np.where(sure & (alone | ~np.isnan(error)), 0.0, error),
        degrees=np.where(sure, np.inf, found.degrees[winner]),
        fails=has_winner & target.failed[winner],
    )


def _fastest(field: _Field, log_ns: Floats) -> tuple[Places, Truths]:
    """Find the row of each group's least time, the first among equals, and whether it has any."""
    if not len(field.start):
        return np.empty(0, np.intp), np.empty(0, np.bool_)
    times = np.where(np.isnan(log_ns), np.inf, log_ns)
    least = np.minimum.reduceat(times, field.start)
    hits = np.flatnonzero(times == least[field.group])
    _, first = np.unique(field.group[hits], return_index=True)
    return hits[first], np.isfinite(least)


@dataclass(frozen=True, slots=True)
class _Platform:
    """The candidates on one GPU, and the agreement of its winners with a repetition of the measurement."""

    name: str
    side: _Side
    order: _Order
    same_again: Floats
    """Per group: probability that a repetition has the same winner; NaN where the noise is unknown."""
    differences: Differences

    def ceilings(self, again: Floats, groups: Places) -> tuple[float | None, float | None]:
        """Average the agreement with a repetition over ``groups``: of orders, given by ``again``, and of winners.

        None where the noise is unknown, and where the candidates do not differ by more than noise.
        """
        if not self.differences.shown(groups):
            return None, None
        return _bounded(_mean(again[groups])), _bounded(_mean(self.same_again[groups]))


def _bounded(agreement: float | None) -> float | None:
    """Limit an estimate, which may go beyond them by chance, to 0 to 1."""
    return None if agreement is None else min(max(agreement, 0.0), 1.0)


def _platforms(field: _Field, pairs: _Pairs, margin: float) -> list[_Platform]:
    sides = _sides(field)
    log_ns, variance = (np.stack([getattr(side, name) for side in sides]) for name in ("log_ns", "variance"))
    winners = repeated_winners(log_ns, variance, field.start, field.group)
    orders = map_threads(lambda side: _ordered(side, pairs, margin), sides)
    return [
        _Platform(name, side, order, again, differences(side.log_ns, side.variance, side.degrees, field.group))
        for name, side, order, again in zip(field.wide.names, sides, orders, winners, strict=True)
    ]


def _compared(
    field: _Field,
    facts: pl.DataFrame,
    pairs: _Pairs,
    platforms: Sequence[_Platform],
    slices: Sequence[tuple[Mapping[str, Any], Places]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Make the rows of ``ranks`` and ``regret``: every pair of GPUs in every slice."""
    drawn = NoiseDraws(facts.height)

    def compare(two: tuple[_Platform, _Platform]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        one, other = two
        tau, rows, costs = _taus(pairs, one.order, other.order), [], []
        there, back = _moved(field, one.side, other.side), _moved(field, other.side, one.side)
        for label, groups in slices:
            names = {**label, "gpu": one.name, "other": other.name}
            ceilings = _ceilings(tau, one, other, groups)
            rows.append({**names, **tau.summary(groups), **there.agreement(groups), **ceilings})
            for origin, target, moved in ((one, other, there), (other, one, back)):
                ends = {**label, "winner_of": origin.name, "run_on": target.name}
                costs.append({**ends, **_regret(moved, groups, facts, drawn)})
        return rows, costs

    found = map_threads(compare, combinations(platforms, 2))
    return [row for rows, _ in found for row in rows], [cost for _, costs in found for cost in costs]


def _ceilings(tau: _Taus, one: _Platform, other: _Platform, groups: Places) -> dict[str, Any]:
    """Compute the agreement that noise allows over ``groups``, in the columns of :data:`_RANKS`."""
    first, top1 = one.ceilings(tau.again[0], groups)
    second, top1_other = other.ceilings(tau.again[1], groups)
    return {
        # Each GPU contributes one of the two factors of a pair's agreement.
        "ceiling_of_both": None if first is None or second is None else float(np.sqrt(first * second)),
        "ceiling": first,
        "ceiling_other": second,
        "top1_ceiling": top1,
        "top1_ceiling_other": top1_other,
    }


def _regret(moved: _Moved, groups: Places, facts: pl.DataFrame, drawn: NoiseDraws) -> dict[str, Any]:
    known = groups[~np.isnan(moved.regret[groups])]
    summary: dict[str, Any] = {"groups": len(known), "fails": int(moved.fails[groups].sum())}
    if not len(known):
        return summary
    values, error, degrees = moved.regret[known], moved.error[known], moved.degrees[known]
    where = facts.row(int(known[np.argmax(values)]), named=True)
    figures = _figures(np.sort(values) ** 2)
    noise: Sequence[float | None] = [None] * len(_FIGURES)
    if not np.isnan(error).any():
        noise = drawn.lines(error, degrees)
    return {
        **summary,
        **{name: float(figure) for name, figure in zip(_FIGURES, figures, strict=True)},
        **{f"{name}_noise": value for name, value in zip(_FIGURES, noise, strict=True)},
        **{f"worst_{name}": where[name] for name in _GROUP},
    }


_FIGURES: Final = {"median": 0.5, "p95": 0.95, "worst": 1.0}
"""What is said of the regrets of groups → its quantile."""
_NOISE_LEVEL: Final = 0.99
"""Share of tables without any cost whose regret is below the noise line."""
_DRAWS: Final = (100, 1000)
"""Fewest and most draws of the regrets that noise alone makes; between them, as many as :data:`_EFFORT` allows."""
_EFFORT: Final = 2_000_000
"""Drawn regrets in total."""
_DEGREES: Final = (1.0, 1000.0)
"""Fewest degrees of freedom that noise is drawn with, and those from which it is as good as normal."""


def _figures(ascending: NDArray[np.floating[Any]]) -> Floats:
    """Compute the figures of regrets; squares of their logarithms ascend along the last axis, then that of figures."""
    place = np.array(list(_FIGURES.values())) * (ascending.shape[-1] - 1)
    low, high = (np.exp(np.sqrt(ascending[..., edge(place).astype(np.intp)])) for edge in (np.floor, np.ceil))
    found: Floats = low + (high - low) * (place % 1)
    return found


class NoiseDraws:
    """Draws of Student's t, shared by all pairs of GPUs and slices, since drawing would take longer than all the rest.

    A noise line is about its own row, so rows need not be independent of each other. Drawn are E and A of Bailey's form
    t = √(d (exp(2E / d) − 1)) cos A (*Polar generation of random variates with the t-distribution*, Math. Comp. 62,
    1994), which suit any degrees of freedom d.
    """

    def __init__(self, groups: int) -> None:
        dice, most = np.random.default_rng(_SEED), max(_EFFORT, groups * _DRAWS[0])
        self._twice_e = 2 * dice.standard_exponential(most, dtype=np.float32)
        cosine = np.cos(2 * np.pi * dice.random(most, dtype=np.float32))
        self._squared_cosine = np.maximum(cosine, 0) ** 2  # noise that makes a winner faster costs nothing

    def lines(self, error: Floats, degrees: Floats) -> list[float]:
        """Compute the noise lines of the figures of regrets with these errors."""
        draws = int(np.clip(_EFFORT // error.size, *_DRAWS))
        few = np.clip(degrees, *_DEGREES)
        squares = self._twice_e[: draws * error.size].reshape(draws, -1) * (1 / few).astype(np.float32)
        np.exp(squares, out=squares)
        squares -= 1
        squares *= self._squared_cosine[: draws * error.size].reshape(draws, -1)
        squares *= (few * error**2).astype(np.float32)
        squares.sort(axis=1)
        lines: list[float] = np.quantile(_figures(squares), _NOISE_LEVEL, axis=0).tolist()
        return lines


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _left_out(too_large: int) -> list[str]:
    if not too_large:
        return []
    sampled = f"tau is over the pairs of {MOST_RIVALS} of them, chosen at random"
    return [f"{too_large} groups have more than {MOST_RIVALS} candidates: {sampled}; winners are found among all."]


def _notes(field: _Field, facts: pl.DataFrame, gpus: Sequence[str], request: QuestionOptions) -> list[str]:
    notes = []
    absent = sorted(set(request.platforms) - set(gpus))
    if absent:
        notes.append(f"No cell ran on {', '.join(absent)}.")
    if len(gpus) == 1:
        notes.append("There is only one GPU, so no orders can be compared.")
    if not facts.height:
        notes.append("No problem has two candidates, so there is nothing to order.")
        return notes
    unknown = field.wide.table.filter(pl.col("candidate_ns").is_not_null() & pl.col("log_error").is_null()).height
    if unknown:
        notes.append(
            f"{unknown} times have an unknown noise, which takes three sessions per cell, or two in 20 cells or more: "
            f"they are tied with candidates that differ by up to {100 * request.margin:g} %, their groups are in no "
            "ceiling and have no noise line, and regret on their GPU is too high, since the best time there is the "
            "least of noisy ones."
        )
    notes.append(
        "`tau` can reach about `ceiling_of_both` if the order on both GPUs is the same. `tau` counts all pairs, also "
        "those that noise does not tell apart (`tied`); `tau_apart` is over those that are apart on both GPUs."
    )
    return notes


def _without_order(platforms: Sequence[_Platform], groups: Places) -> list[str]:
    """Write notes on GPUs that have no ceiling although their noise is known."""
    return [
        f"On {one.name} the candidates do not differ by more than noise: it has no order that another GPU could have "
        "too, and no ceiling."
        for one in platforms
        if one.differences.tested(groups) and not one.differences.shown(groups)
    ]


_RANKS: Final[Mapping[str, Any]] = {
    "gpu": pl.String(),
    "other": pl.String(),
    "groups": pl.Int64(),
    "with_tau": pl.Int64(),
    "tau": pl.Float64(),
    "ceiling_of_both": pl.Float64(),
    "ceiling": pl.Float64(),
    "ceiling_other": pl.Float64(),
    "pairs": pl.Int64(),
    "tied": pl.Int64(),
    "tied_other": pl.Int64(),
    "apart": pl.Int64(),
    "tau_apart": pl.Float64(),
    "winners": pl.Int64(),
    "top1": pl.Float64(),
    "top1_ceiling": pl.Float64(),
    "top1_ceiling_other": pl.Float64(),
}
_RANKS_MEANINGS: Final[Mapping[str, str]] = {
    "groups": "problem × dtype × workload (× toolchain) with two candidates timed on both GPUs",
    "with_tau": "groups with a tau: neither GPU ties all of their candidates",
    "tau": "mean over them of Kendall's tau-b (Biometrika 33, 1945)",
    "ceiling_of_both": "tau that noise allows if both GPUs have the same order: √(ceiling · ceiling_other)",
    "ceiling": "tau between the measurement on `gpu` and a repetition of it, estimated from the noise; null where the "
    "noise is unknown, and where the candidates do not differ by more than noise",
    "ceiling_other": "the same for `other`",
    "pairs": "pairs of candidates timed on both GPUs",
    "tied": "pairs that differ by no more than noise on `gpu`, at 5 %; where the noise is unknown, than the margin",
    "tied_other": "the same on `other`",
    "apart": "pairs that are tied on neither",
    "tau_apart": "over these pairs: (same order − opposite order) ÷ all",
    "winners": "groups with a fastest candidate on both",
    "top1": "share of these groups with the same fastest candidate on both",
    "top1_ceiling": "top1 between the measurement on `gpu` and a repetition of it",
    "top1_ceiling_other": "the same for `other`",
}
_REGRET: Final[Mapping[str, Any]] = {
    "winner_of": pl.String(),
    "run_on": pl.String(),
    "groups": pl.Int64(),
    "fails": pl.Int64(),
    **{name: pl.Float64() for figure in _FIGURES for name in (figure, f"{figure}_noise")},
    **{f"worst_{name}": pl.Int32() if name == "ranks" else pl.String() for name in _GROUP},
}
_REGRET_MEANINGS: Final[Mapping[str, str]] = {
    "groups": "groups in which the winner of `winner_of` is timed on `run_on`",
    "fails": "further groups in which it fails there by its own fault",
    "median": "median of its time there ÷ the best there of any other candidate with a result on both, at least 1; "
    "the best is corrected for the choice among noisy times (Stein 1981)",
    "median_noise": "99 % of medians are below this if the winners cost nothing: a lower one is no sign of a cost",
    "p95": "95 % quantile of the same ratio",
    "p95_noise": "as median_noise, of p95",
    "worst": "the greatest such ratio; its problem, dtype and workload follow",
    "worst_noise": "as median_noise, of worst",
}
