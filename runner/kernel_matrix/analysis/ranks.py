"""Rank agreement: the order of candidates on one GPU against another, and the regret of reusing a winner.

Candidates are compared by their times within one problem, dtype, workload and toolchain (toolchains together where
each GPU has only one). Two are *tied* on a GPU if the 95 % intervals of their times overlap or, where one has too few
sessions for an interval, if they differ by no more than the margin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.questions import Answer, QuestionOptions
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

_GROUP: Final = ("problem", "dtype", "workload")
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
    """The candidates on one GPU, or in one half of its sessions."""

    log_ns: Floats
    """Log of the time in ns; NaN where nothing passed and was timed."""
    reach: Floats
    """Half-width of the 95 % interval of ``log_ns``; NaN where there is none."""
    failed: Truths


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
    here = found.table.filter(pl.col("gpu").is_in(gpus))
    group = _GROUP if one_toolchain_per_gpu(here) else (*_GROUP, "toolchain")
    rivals = here.filter(pl.col("candidate").n_unique().over(group) > 1)
    field, facts = _field(rivals, gpus, group), _facts(rivals, group, by)
    pairs, too_large = _pairs(field)
    notes = [*found.notes, *nameless, *_notes(field, facts, gpus, request), *_left_out(too_large)]
    platforms = _platforms(field, pairs, request.margin)
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


def _sides(wide: FoldedTable) -> list[_Side]:
    """Extract the candidates on each GPU."""
    log_ns, reach = np.log(wide.of(wide.table["candidate_ns"])), wide.of(wide.table["log_reach"])
    failed = wide.stands(Standing.FAILED)
    return [_Side(log_ns[:, place], reach[:, place], failed[:, place]) for place in range(len(wide.names))]


def _halves(wide: FoldedTable) -> list[tuple[_Side, _Side]]:
    """Split each GPU's sessions into even and odd ones; their intervals use the spread of all sessions."""
    sessions = wide.table["sessions"].to_numpy()
    total = int(sessions.sum())
    logs = wide.table["logs"].explode().drop_nulls().to_numpy()
    cell = np.repeat(np.arange(len(sessions)), sessions)
    number = np.arange(total) - np.repeat(np.cumsum(sessions) - sessions, sessions)
    none_failed = np.zeros(wide.keys.height, dtype=np.bool_)
    found = []
    for remainder in (0, 1):
        mine = number % 2 == remainder
        count = np.bincount(cell[mine], minlength=len(sessions))
        count = np.where(sessions > 1, count, np.nan)  # one session has no halves
        mean = np.bincount(cell[mine], weights=logs[mine], minlength=len(sessions)) / count
        reach = wide.table["log_reach"].to_numpy() * np.sqrt(sessions / count)
        found.append((wide.of(pl.Series(mean)), wide.of(pl.Series(reach))))
    (one, reach_one), (two, reach_two) = found
    return [
        (_Side(one[:, place], reach_one[:, place], none_failed), _Side(two[:, place], reach_two[:, place], none_failed))
        for place in range(len(wide.names))
    ]


def _pairs(field: _Field) -> tuple[tuple[Places, Places], int]:
    """List the rows of the two candidates of each pair in a group, and count the groups that were too large."""
    size = np.diff(field.start, append=len(field.group))
    shuffled = np.random.default_rng(_SEED).random(len(field.group))
    order = np.lexsort((shuffled, field.group))
    large = int((size > MOST_RIVALS).sum())
    size = np.minimum(size, MOST_RIVALS)
    first, second = [], []
    for count in np.unique(size):
        one, two = np.triu_indices(count, 1)
        starts = field.start[size == count, None]
        first.append(order[(starts + one).ravel()])
        second.append(order[(starts + two).ravel()])
    if not first:
        return (np.empty(0, np.intp), np.empty(0, np.intp)), 0
    return (np.concatenate(first), np.concatenate(second)), large


def _signs(side: _Side, pairs: tuple[Places, Places], margin: float) -> Floats:
    """Order each pair: −1 if the first is faster, 1 if it is slower, 0 if they are tied, NaN if one is missing."""
    first, second = pairs
    difference = side.log_ns[first] - side.log_ns[second]
    reach = side.reach[first] + side.reach[second]
    tied = np.abs(difference) <= np.where(np.isnan(reach), np.log1p(margin), reach)
    signs: Floats = np.where(tied, 0.0, np.sign(difference))
    return signs


@dataclass(frozen=True, slots=True)
class _Taus:
    """Tau-b per group (NaN where one side ties all pairs), and the sums it is made of."""

    tau: Floats
    agreeing: Floats
    decided: Floats
    decided_other: Floats
    pairs: Floats

    def summary(self, groups: Places) -> dict[str, Any]:
        """Summarise tau over ``groups``, in the columns of :data:`_RANKS`."""
        scale = float(np.sqrt(self.decided[groups].sum() * self.decided_other[groups].sum()))
        return {
            "groups": int((self.pairs[groups] > 0).sum()),
            "with_tau": int((~np.isnan(self.tau[groups])).sum()),
            "tau": _mean(self.tau[groups]),
            "pairs": int(self.pairs[groups].sum()),
            "tied": int((self.pairs - self.decided)[groups].sum()),
            "tied_other": int((self.pairs - self.decided_other)[groups].sum()),
            "tau_of_pairs": float(self.agreeing[groups].sum()) / scale if scale else None,
        }


def _taus(field: _Field, pairs: tuple[Places, Places], one: Floats, two: Floats) -> _Taus:
    """Compute Kendall's tau-b per group: Σ aᵢⱼbᵢⱼ ÷ √(Σ aᵢⱼ² Σ bᵢⱼ²) over pairs i < j, with a and b in −1, 0, 1.

    Kendall, *The treatment of ties in ranking problems*, Biometrika 33, 1945. This form (Daniels, Biometrika 33, 1944)
    needs no ranks, which ties by overlap, being not transitive, do not give.
    """
    groups, both = len(field.start), ~(np.isnan(one) | np.isnan(two))
    where, a, b = field.group[pairs[0]][both], one[both], two[both]

    def total(values: Floats) -> Floats:
        return np.bincount(where, weights=values, minlength=groups).astype(np.float64)

    agreeing, decided, decided_other = total(a * b), total(a * a), total(b * b)
    scale = np.sqrt(decided * decided_other)
    tau = np.divide(agreeing, scale, out=np.full(groups, np.nan), where=scale > 0)
    return _Taus(tau, agreeing, decided, decided_other, total(np.ones(len(where))))


@dataclass(frozen=True, slots=True)
class _Moved:
    """Result of each group's winner on one side when it runs on the other."""

    same: Floats
    """1 if it is the winner there too, else 0; NaN without a winner on both sides."""
    regret: Floats
    """Its time there ÷ that of the winner there; NaN without a time."""
    fails: Truths
    """It fails there by its own fault."""

    def agreement(self, groups: Places) -> dict[str, Any]:
        """Summarise agreement on the winner over ``groups``, in the columns of :data:`_RANKS`."""
        return {"winners": int((~np.isnan(self.same[groups])).sum()), "top1": _mean(self.same[groups])}


def _moved(field: _Field, origin: _Side, target: _Side) -> _Moved:
    """Take the fastest candidate of ``origin`` to ``target``, among those with a result on both."""
    answered = ~np.isnan(target.log_ns) | target.failed
    compared = ~np.isnan(origin.log_ns) | origin.failed
    winner, has_winner = _fastest(field, np.where(answered, origin.log_ns, np.nan))
    other, has_other = _fastest(field, np.where(compared, target.log_ns, np.nan))
    both = has_winner & has_other
    regret = np.where(both, np.exp(target.log_ns[winner] - target.log_ns[other]), np.nan)
    return _Moved(np.where(both, winner == other, np.nan), regret, has_winner & target.failed[winner])


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
    """The candidates on one GPU, and the agreement between the halves of its sessions."""

    name: str
    side: _Side
    signs: Floats
    """Order of each pair; see :func:`_signs`."""
    taus_again: _Taus
    moved_again: _Moved

    def ceilings(self, groups: Places, suffix: str = "") -> dict[str, Any]:
        """Summarise the agreement that noise allows over ``groups``, in the columns of :data:`_RANKS`."""
        return {
            f"ceiling{suffix}": _mean(self.taus_again.tau[groups]),
            f"top1_ceiling{suffix}": _mean(self.moved_again.same[groups]),
        }


def _platforms(field: _Field, pairs: tuple[Places, Places], margin: float) -> list[_Platform]:
    return [
        _Platform(
            name=name,
            side=side,
            signs=_signs(side, pairs, margin),
            taus_again=_taus(field, pairs, *(_signs(half, pairs, margin) for half in halves)),
            moved_again=_moved(field, *halves),
        )
        for name, side, halves in zip(field.wide.names, _sides(field.wide), _halves(field.wide), strict=True)
    ]


def _compared(
    field: _Field,
    facts: pl.DataFrame,
    pairs: tuple[Places, Places],
    platforms: Sequence[_Platform],
    slices: Sequence[tuple[Mapping[str, Any], Places]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Make the rows of ``ranks`` and ``regret``: every pair of GPUs in every slice."""
    rows, costs = [], []
    for one, other in combinations(platforms, 2):
        tau = _taus(field, pairs, one.signs, other.signs)
        there, back = _moved(field, one.side, other.side), _moved(field, other.side, one.side)
        for label, groups in slices:
            ceilings = {**one.ceilings(groups), **other.ceilings(groups, "_other")}
            names = {**label, "gpu": one.name, "other": other.name}
            rows.append({**names, **tau.summary(groups), **there.agreement(groups), **ceilings})
            for origin, target, moved in ((one, other, there), (other, one, back)):
                ends = {**label, "winner_of": origin.name, "run_on": target.name}
                costs.append({**ends, **_regret(moved, groups, facts)})
    return rows, costs


def _regret(moved: _Moved, groups: Places, facts: pl.DataFrame) -> dict[str, Any]:
    regret = moved.regret[groups]
    known = groups[~np.isnan(regret)]
    values = moved.regret[known]
    summary: dict[str, Any] = {"groups": len(known), "fails": int(moved.fails[groups].sum())}
    if not len(known):
        return summary
    worst = int(known[np.argmax(values)])
    median, high = np.quantile(values, [0.5, 0.95])
    where = facts.row(worst, named=True)
    return {
        **summary,
        "median": float(median),
        "p95": float(high),
        "worst": float(moved.regret[worst]),
        **{f"worst_{name}": where[name] for name in _GROUP},
    }


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
    single = int((field.wide.table["sessions"] == 1).sum())
    if single:
        notes.append(
            f"{single} cells have one session: they are tied with candidates that differ by up to "
            f"{100 * request.margin:g} %, and they are in no ceiling."
        )
    notes.append(
        "The ceiling is tau between halves of the sessions of one GPU: the agreement that noise alone allows. "
        "Halves are noisier than all sessions, so the true ceiling is somewhat higher."
    )
    return notes


_RANKS: Final[Mapping[str, Any]] = {
    "gpu": pl.String(),
    "other": pl.String(),
    "groups": pl.Int64(),
    "with_tau": pl.Int64(),
    "tau": pl.Float64(),
    "ceiling": pl.Float64(),
    "ceiling_other": pl.Float64(),
    "pairs": pl.Int64(),
    "tied": pl.Int64(),
    "tied_other": pl.Int64(),
    "tau_of_pairs": pl.Float64(),
    "winners": pl.Int64(),
    "top1": pl.Float64(),
    "top1_ceiling": pl.Float64(),
    "top1_ceiling_other": pl.Float64(),
}
_RANKS_MEANINGS: Final[Mapping[str, str]] = {
    "groups": "problem × dtype × workload (× toolchain) with two candidates timed on both GPUs",
    "with_tau": "groups with a tau: neither GPU ties all of their candidates",
    "tau": "mean over them of Kendall's tau-b (Biometrika 33, 1945), ties where 95 % intervals overlap",
    "ceiling": "tau between two halves of the sessions of `gpu`: the agreement that noise allows",
    "ceiling_other": "the same for `other`",
    "pairs": "pairs of candidates timed on both GPUs",
    "tied": "pairs tied on `gpu`",
    "tied_other": "pairs tied on `other`",
    "tau_of_pairs": "tau-b over all pairs of all groups at once",
    "winners": "groups with a fastest candidate on both",
    "top1": "share of these groups with the same fastest candidate on both",
    "top1_ceiling": "top1 between halves of the sessions of `gpu`",
    "top1_ceiling_other": "the same for `other`",
}
_REGRET: Final[Mapping[str, Any]] = {
    "winner_of": pl.String(),
    "run_on": pl.String(),
    "groups": pl.Int64(),
    "fails": pl.Int64(),
    "median": pl.Float64(),
    "p95": pl.Float64(),
    "worst": pl.Float64(),
    **{f"worst_{name}": pl.String() for name in _GROUP},
}
_REGRET_MEANINGS: Final[Mapping[str, str]] = {
    "groups": "groups in which the winner of `winner_of` is timed on `run_on`",
    "fails": "further groups in which it fails there by its own fault",
    "median": "median of its time there ÷ that of the fastest there, among candidates with a result on both",
    "p95": "95 % quantile of the same ratio",
    "worst": "the greatest such ratio; its problem, dtype and workload follow",
}
