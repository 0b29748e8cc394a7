"""Pairs of candidates as a data set: failing → passing, and slower → faster.

Both sides of a pair are believed records of the same work, and of the same host where times are compared
(:mod:`kernel_matrix.analysis.believed_records`). That the second is faster is decided by the rules of
:mod:`kernel_matrix.analysis.compare`, for all workloads, and by the judge's own clock as for a verdict.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl

from kernel_matrix.analysis.believed_records import SAME_HOST, SAME_WORK, BelievedRecords
from kernel_matrix.analysis.compare import compare
from kernel_matrix.analysis.comparison import Change
from kernel_matrix.analysis.nearest_texts import NearestTexts, RankedTexts
from kernel_matrix.analysis.problem_splits import SPLITS, normalise_problems, split_of
from kernel_matrix.analysis.source_identity import SourceText
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.measure.verdict import object_to_bounds
from kernel_matrix.results.record import FAILS_HELD_OUT

ERROR_CORRECTION, OPTIMISATION = KINDS = ("error_correction", "optimisation")
PARENT, NEAREST_TEXT = RELATIONS = ("parent", "nearest_text")
_ORIGIN: Final = pl.Struct({"model": pl.String(), "method": pl.String(), "source": pl.String()})

PAIRS: Final[dict[str, pl.DataType]] = {
    "kind": pl.Enum(KINDS),
    **dict.fromkeys(("problem", "category", "dtype", "gpu", "toolchain", "language"), pl.String()),
    "before": pl.String(),
    "after": pl.String(),
    "status_before": pl.String(),
    "evidence_before": pl.String(),
    **dict.fromkeys(("time_before_ns", "time_after_ns", "speedup", "speedup_limit"), pl.Float64()),
    "verdict": pl.Enum([Change.FIXED.value, Change.IMPROVEMENT.value]),
    "reason": pl.String(),
    "record_before": pl.String(),
    "record_after": pl.String(),
    "licence": pl.String(),
    "origin_before": _ORIGIN,
    "origin_after": _ORIGIN,
    "relation": pl.Enum(RELATIONS),
    "similarity": pl.Float64(),
    "split": pl.Enum(list(SPLITS)),
}
"""Columns. ``before``, ``after``: source texts. ``evidence_before``: JSON. Times: geometric means over sessions and
workloads, null unless both sides were compared. ``speedup``: before ÷ after. ``speedup_limit``: the same if each call
of ``after`` took the longest that the judge's own clock allows, the lowest of all sessions and workloads. ``licence``:
of both sides, null where one is not known. ``similarity``: :mod:`difflib`'s ratio of the lines of both texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSet:
    """Pairs with the columns :data:`PAIRS`, and how many records and pairs were left out for which reason."""

    table: pl.DataFrame
    records_left_out: Mapping[str, int]
    pairs_left_out: Mapping[str, int]


Side: TypeAlias = Mapping[str, Any]
"""A row of the table of sides."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two sides."""

    before: Side
    after: Side
    relation: str
    similarity: float
    timing: Mapping[str, Any] = field(default_factory=dict)
    """Columns of :data:`PAIRS` about times and the verdict."""


def make_pairs(
    tables: Tables,
    records: BelievedRecords,
    sources: Mapping[str, SourceText],
    *,
    most_each: int = 1,
) -> PairSet:
    """Pair the candidates of each problem.

    Args:
        tables: The tables that ``records`` were chosen from.
        records: The sides.
        sources: Sources of candidates and of references by the digest that records have.
        most_each: Pairs per slower or failing candidate, where no parent is known.
    """
    known = pl.col("candidate_sha256").is_in(list(sources))
    sides = records.table.filter(known)
    missing = records.table.height - sides.height
    corrections, optimisations = _choose(sides, sources, most_each)
    left_out: Counter[str] = Counter()
    chosen = [
        *((ERROR_CORRECTION, pair) for pair in corrections),
        *((OPTIMISATION, pair) for pair in _faster(tables, optimisations, left_out)),
    ]
    once = list(_without_repetitions(chosen, sources, left_out))
    identities = normalise_problems(
        (name, sources[digest].identity if digest in sources else None)
        for name, digest in sides.select("problem", "problem_sha256").unique().iter_rows()
    )
    rows = [_row(kind, pair, sources, split_of(identities[pair.after["problem"]])) for kind, pair in once]
    untimed = Counter(sides.filter("passed")["time_fault"].drop_nulls().to_list())
    return PairSet(
        table=pl.DataFrame(rows, schema=PAIRS, orient="row").sort("kind", "problem", "record_before", "record_after"),
        records_left_out={
            **records.left_out,
            "the source is not here as it was measured": missing,
            **{f"{reason} (left out of {OPTIMISATION} only)": number for reason, number in untimed.items()},
        },
        pairs_left_out=left_out,
    )


# ---- which pairs


def _choose(sides: pl.DataFrame, sources: Mapping[str, SourceText], most_each: int) -> tuple[list[_Pair], list[_Pair]]:
    """Choose the pairs of failing and passing candidates, and those whose times are to be compared."""
    corrections: list[_Pair] = []
    optimisations: list[_Pair] = []
    for _problem, of_problem in sides.sort("record").group_by("problem", maintain_order=True):
        texts = _ProblemTexts(of_problem, sources)
        for _work, group in of_problem.group_by(SAME_WORK, maintain_order=True):
            rows = group.to_dicts()
            failed, passed = ([row for row in rows if row["passed"] is it] for it in (False, True))
            for part in _by(passed, "workloads"):
                fitting = [row for row in failed if set(row["workloads"]) <= set(part[0]["workloads"])]
                corrections += texts.pair(fitting, part, most_each, _failed_last)
            timed = [row for row in passed if row["time_fault"] is None]
            for part in _by(timed, "workloads", *SAME_HOST):
                optimisations += texts.pair(part, part, most_each, _time)
    return corrections, optimisations


def _by(rows: Iterable[Side], *names: str) -> list[list[Side]]:
    groups: dict[str, list[Side]] = {}
    for row in rows:
        groups.setdefault(repr([row[name] for name in names]), []).append(row)
    return list(groups.values())


class _ProblemTexts:
    """The different sources of one problem."""

    def __init__(self, sides: pl.DataFrame, sources: Mapping[str, SourceText]) -> None:
        digests = sides["candidate_sha256"].unique(maintain_order=True).to_list()
        by_identity = {sources[digest].identity: sources[digest].text for digest in digests}
        places = {identity: place for place, identity in enumerate(by_identity)}
        self._number = {digest: places[sources[digest].identity] for digest in digests}
        self._texts = NearestTexts(list(by_identity.values()))

    def pair(
        self, before: Sequence[Side], after: Sequence[Side], most_each: int, rank: Callable[[Side], float]
    ) -> Iterator[_Pair]:
        """Pair each of ``before`` with its children in ``after``, or else with the nearest texts there.

        Only sides with a lower ``rank`` are partners.
        """
        names = {row["candidate"]: row for row in before}
        children: dict[int, list[Side]] = {}
        for child in after:
            parent = _parent(child, names)
            if parent is not None and rank(child) < rank(parent) and self._of(child) != self._of(parent):
                children.setdefault(parent["record"], []).append(child)
        for row in before:
            yield from (self._pair(row, child, PARENT) for child in children.get(row["record"], ()))
        others = [row for row in before if row["record"] not in children]
        found = self._texts.nearest(self._ranked(others, rank), self._ranked(after, rank), most_each)
        for row, places in zip(others, found, strict=True):
            yield from (self._pair(row, after[place], NEAREST_TEXT) for place in places)

    def _of(self, row: Side) -> int:
        return self._number[row["candidate_sha256"]]

    def _ranked(self, rows: Sequence[Side], rank: Callable[[Side], float]) -> RankedTexts:
        return RankedTexts(
            np.array([self._of(row) for row in rows], np.intp), np.array([rank(row) for row in rows], np.float64)
        )

    def _pair(self, before: Side, after: Side, relation: str) -> _Pair:
        return _Pair(before, after, relation, self._texts.similarity(self._of(before), self._of(after)))


def _failed_last(side: Side) -> float:
    return 0.0 if side["passed"] else 1.0


def _time(side: Side) -> float:
    return float(side["log_ns"])


def _parent(child: Side, names: Mapping[str, Side]) -> Side | None:
    """Return the row of the candidate that ``child`` was made from, if there is one."""
    name = child["origin_parent"]
    found = names.get(f"{child['problem']}/{name}", names.get(name)) if name else None
    return None if found is None or found["record"] == child["record"] else found


# ---- which are faster


def _faster(tables: Tables, pairs: Sequence[_Pair], left_out: Counter[str]) -> Iterator[_Pair]:
    """Yield the pairs of which the second is shown to be faster for every workload."""
    if not pairs:
        return
    before, after = (
        _renamed(tables.cells, [getattr(pair, side)["record"] for pair in pairs]) for side in ("before", "after")
    )
    bounds = _bounds(after)
    found = compare(before, after, mostly_unchanged=False).rows.sort("workload")
    for rows in found.partition_by("candidate"):
        place = rows["candidate"][0]
        bounded = [
            [before_ns / bound_ns for bound_ns in bounds[place, workload]]
            for workload, before_ns in rows.select("workload", "base_value").iter_rows()
        ]
        if not (rows["change"] == Change.IMPROVEMENT.value).all():
            left_out["a workload is not shown to be faster"] += 1
        elif any(object_to_bounds(of_sessions) for of_sessions in bounded):
            left_out["it may not be faster, had its calls taken as long as the judge's clock allows"] += 1
        else:
            yield replace(pairs[int(place)], timing=_timing(rows, min(map(min, bounded))))


def _renamed(cells: pl.LazyFrame, records: Sequence[int]) -> pl.LazyFrame:
    """Return the rows of ``records``, each as a record and candidate of its own with its place in the list as name."""
    numbers = pl.DataFrame({"record": records}, schema={"record": pl.UInt32}).with_row_index("_place").lazy()
    return (
        cells.join(numbers, on="record")
        .with_columns(record=pl.col("_place"), candidate=pl.col("_place").cast(pl.String))
        .drop("_place")
    )


def _bounds(cells: pl.LazyFrame) -> Mapping[tuple[str, str], Sequence[float]]:
    """Return the longest that a call can have taken in each session, by candidate and workload."""
    found = cells.group_by("candidate", "workload").agg("wall_bound_ns").collect()
    return {(name, workload): bounds for name, workload, bounds in found.iter_rows()}


def _timing(rows: pl.DataFrame, limit: float) -> dict[str, Any]:
    before, after = rows.select(pl.col("base_value", "new_value").log().mean().exp()).row(0)
    each = [
        f"{row['workload']}: {1 / row['ratio']:.4g}× (95 % interval {1 / row['ratio_high']:.4g} to"
        f" {1 / row['ratio_low']:.4g}, {row['test']} test, q {row['q']:.2g})"
        for row in rows.to_dicts()
    ]
    return {
        "time_before_ns": before,
        "time_after_ns": after,
        "speedup": before / after,
        "speedup_limit": limit,
        "reason": "; ".join(each),
    }


# ---- rows


def _without_repetitions(
    pairs: Iterable[tuple[str, _Pair]], sources: Mapping[str, SourceText], left_out: Counter[str]
) -> Iterator[tuple[str, _Pair]]:
    seen = set()
    for kind, pair in pairs:
        key = tuple(sources[side["candidate_sha256"]].identity for side in (pair.before, pair.after))
        if key in seen:
            left_out["another pair has the same two sources"] += 1
        else:
            seen.add(key)
            yield kind, pair


def _row(kind: str, pair: _Pair, sources: Mapping[str, SourceText], split: str) -> dict[str, Any]:
    before, after = pair.before, pair.after
    of_before, of_after = (sources[side["candidate_sha256"]] for side in (before, after))
    told = {"message": FAILS_HELD_OUT if before["specialised"] else before["message"], "stage": before["stage"]}
    evidence = json.dumps({name: text for name, text in told.items() if text}, ensure_ascii=False)
    verdict = Change.FIXED if kind == ERROR_CORRECTION else Change.IMPROVEMENT
    licences = [side.licence for side in (of_before, of_after) if side.licence is not None]
    row = {
        **{name: after[name] for name in ("problem", "category", "dtype", "gpu", "toolchain", "language")},
        "kind": kind,
        "before": of_before.text,
        "after": of_after.text,
        "status_before": before["status"],
        "evidence_before": evidence if kind == ERROR_CORRECTION else None,
        "verdict": verdict.value,
        "reason": f"{before['status']} → {after['status']}",
        "record_before": f"{before['cell_id']}.{before['attempt']}",
        "record_after": f"{after['cell_id']}.{after['attempt']}",
        "licence": " AND ".join(sorted(set(licences))) if len(licences) > 1 else None,
        "origin_before": _origin(before),
        "origin_after": _origin(after),
        "relation": pair.relation,
        "similarity": pair.similarity,
        "split": split,
        **pair.timing,
    }
    return {name: row.get(name) for name in PAIRS}


def _origin(side: Side) -> dict[str, Any]:
    return {"model": side["origin_model"], "method": side["origin_method"], "source": side["source"]}
