"""What fewer sessions would have said: verdicts and speed-ups of some of a workload's sessions against those of all.

The verdict of one session is in the tables. That of several is computed from their speed-ups, so a tick of the clock
and bounds play no part in it; workloads whose verdict rests on these are left out.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any, Final

import polars as pl

from kernel_matrix.analysis.outcomes import CELL_KEY, candidate_kind
from kernel_matrix.analysis.quantiles import normal_quantile, of_sessions, wilson
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.sentences import rough_percent
from kernel_matrix.analysis.slices import columns_of
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import NothingSelectedError
from kernel_matrix.measure.verdict import compare
from kernel_matrix.model.enums import Verdict, VerdictReason
from kernel_matrix.results.attempts import is_shown, latest_attempts

FEWEST_SESSIONS: Final = 3
"""Sessions of a workload that is looked at: the verdict of two is hardly more than that of one."""
MOST_DRAWS: Final = 10
"""Draws of several sessions of a workload, for each number: all that five sessions have."""
OBJECTIONS: Final = (
    VerdictReason.COARSE_CLOCK,
    VerdictReason.BOUND_BELOW_1,
    VerdictReason.FEW_CALLS,
    VerdictReason.SCATTERED,
    VerdictReason.AUDIT_OBJECTS,
)
"""Reasons of verdicts that more sessions would not change."""
FINDINGS: Final = ("contradicted", "unconfirmed", "undecided", "agree")
"""How the verdict of a draw compares with that of all sessions, the worst first."""
_WRONG: Final = FINDINGS[:2]
_SEED: Final = 1

_OF_WORKLOADS: Final = ("verdict", "verdict_reason", "verdict_low", "verdict_high")
_OF_SESSIONS: Final = ("session", "speedup", "session_verdict")

SINGLE_SESSIONS: Final = (
    *("problem", "candidate", "dtype", "gpu", "toolchain", "ranks", "workload", "finding", "verdict", "speedup"),
    *("speedup_low", "speedup_high", "session_verdict", "session_speedup", "off_percent", "session"),
    *("wrong_sessions", "sessions"),
)
"""Columns of the second table."""


def session_counts(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Answer ``sessions``, one row per number of sessions and slice, and ``single_sessions``, where one was wrong.

    Raises:
        UsageError: A slice is unknown.
        NothingSelectedError: No workload has a verdict of enough sessions.
    """
    by = list(request.by)
    found = _workloads(tables.cells, by)
    objected = pl.col("verdict_reason").is_in([one.value for one in OBJECTIONS]).fill_null(value=False)
    known = found.filter(pl.col("verdict").is_not_null())
    clean = known.filter(~objected)
    enough = clean.filter(pl.col("session").list.len() >= FEWEST_SESSIONS).with_row_index("place")
    if enough.is_empty():
        raise NothingSelectedError(
            f"no workload has a verdict of {FEWEST_SESSIONS} sessions or more that rests on no objection",
            next_step="Run cells with `--tier publish`, which takes several sessions of each, merge, and ask again.",
        )
    draws = _draws(enough)
    single = _single_sessions(draws)
    notes = [
        *_left_out(found.height - known.height, known.filter(objected), clean.height - enough.height),
        *_sampled(enough),
    ]
    return [
        Answer(
            name="sessions",
            title="Verdicts of fewer sessions against those of all",
            table=_per_count(draws, by),
            meanings=_MEANINGS,
            notes=notes,
            statements=list(_statements(_per_count(draws, []))),
        ),
        Answer(
            name="single_sessions",
            title="Workloads of which one session alone is wrong",
            table=single,
            meanings=_MEANINGS_OF_SINGLE,
            notes=[_ABOUT_ROWS if single.height else "There is none."],
        ),
    ]


def _workloads(cells: pl.LazyFrame, by: Sequence[str]) -> pl.DataFrame:
    """Make one row per latest attempt and workload, with lists of :data:`_OF_SESSIONS` of the sessions with a speed-up.

    Args:
        cells: The table.
        by: Slices, which become columns of these names.
    """
    named = zip(by, columns_of(by), strict=True)
    slices = [pl.col(column).alias(name) for name, column in named if name not in CELL_KEY]
    latest = latest_attempts(cells, ("cell_id", "host_id", "gpu_uuid"))
    timed = (pl.col("speedup") > 0) & pl.col("speedup").is_finite()
    return (
        cells.filter(is_shown() & pl.col("workload").is_not_null())
        .join(latest, on="record", how="semi")
        .with_columns(candidate_kind=candidate_kind())
        .select("record", *CELL_KEY, *_OF_WORKLOADS, *_OF_SESSIONS, *slices)
        .group_by("record", "workload", maintain_order=True)
        .agg(
            pl.exclude("record", "workload", *_OF_SESSIONS).first(),
            pl.col(_OF_SESSIONS).filter(timed).sort_by(pl.col("session").filter(timed)),
        )
        .collect()
    )


def _draws(workloads: pl.DataFrame) -> pl.DataFrame:
    """Make one row per draw: the columns of its workload, its ``draw_…``, and what is found about it."""
    single = workloads.select(
        "place",
        pl.lit(1, pl.Int64).alias("sessions"),
        draw_session="session",
        draw_verdict="session_verdict",
        draw_speedup="speedup",
    ).explode("draw_session", "draw_verdict", "draw_speedup")
    several = pl.DataFrame(_several(workloads["speedup"].to_list()), schema=single.schema, orient="row")
    one, all_ = (pl.col(name).cast(pl.String) for name in ("draw_verdict", "verdict"))
    contradicted, unconfirmed, undecided, agree = map(pl.lit, FINDINGS)
    undirected = [Verdict.INCONCLUSIVE.value, Verdict.EQUIVALENT.value]
    finding = (
        pl.when(one == all_)
        .then(agree)
        .when(one == Verdict.INCONCLUSIVE.value)
        .then(undecided)
        .when(all_.is_in(undirected))
        .then(unconfirmed)
        .otherwise(contradicted)
    )
    speedup = pl.col("speedup").list.eval(pl.element().log()).list.mean().exp()
    return (
        pl.concat([single, several])
        .filter(pl.col("draw_verdict").is_not_null())
        .join(workloads.with_columns(speedup=speedup, most=pl.col("session").list.len()), on="place")
        .with_columns(
            finding=finding.cast(pl.Enum(FINDINGS)),
            off_percent=100 * ((pl.col("draw_speedup") / pl.col("speedup")).log().abs().exp() - 1),
        )
        .with_columns(wrong=pl.col("finding").cast(pl.String).is_in(_WRONG))
    )


def _several(speedups: Sequence[Sequence[float]]) -> Iterator[tuple[int, int, None, str, float]]:
    """Yield place, number of sessions, no session, verdict and speed-up of each draw of two sessions or more."""
    for place, known in enumerate(speedups):
        for count in range(2, len(known)):
            for chosen in choose(len(known), count):
                found = compare([known[number] for number in chosen])
                yield place, count, None, found.verdict.value, found.estimate


@lru_cache
def choose(total: int, count: int) -> Sequence[tuple[int, ...]]:
    """Return all choices of ``count`` of ``total`` sessions; of more than :data:`MOST_DRAWS` a random sample."""
    if math.comb(total, count) <= MOST_DRAWS:
        return list(combinations(range(total), count))
    dice = random.Random(_SEED)  # noqa: S311  # the same sample each time
    found: dict[tuple[int, ...], None] = {}
    while len(found) < MOST_DRAWS:
        found[tuple(sorted(dice.sample(range(total), count)))] = None
    return list(found)


def _per_count(draws: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Summarise the draws of each number of sessions and slice."""
    keys, off = [*by, "sessions"], pl.col("off_percent")
    cells = draws.group_by(*keys, "record").agg(
        _draws=pl.len().cast(pl.Float64), _wrong=pl.col("wrong").sum().cast(pl.Float64)
    )
    squares = cells.group_by(keys).agg(
        pl.len().cast(pl.Int64).alias("cells"),
        (pl.col("_wrong") ** 2).sum().alias("_squares"),
        (pl.col("_wrong") * pl.col("_draws")).sum().alias("_products"),
        (pl.col("_draws") ** 2).sum().alias("_sizes"),
    )
    found = draws.group_by(keys).agg(
        pl.col("place").n_unique().cast(pl.Int64).alias("workloads"),
        pl.len().cast(pl.Int64).alias("draws"),
        *((pl.col("finding") == word).sum().cast(pl.Int64).alias(word) for word in reversed(FINDINGS)),
        pl.col("wrong").mean().alias("wrong_share"),
        off.median().alias("median_off_percent"),
        off.quantile(0.95, "linear").alias("p95_off_percent"),
        off.max().alias("max_off_percent"),
    )
    low, high = wilson(pl.col("wrong_share"), _independent_draws())
    table = found.join(squares, on=keys, nulls_equal=True).with_columns(wrong_low=low, wrong_high=high)
    first = [*keys, "cells", "workloads", "draws", *reversed(FINDINGS), "wrong_share", "wrong_low", "wrong_high"]
    return table.select(*first, "median_off_percent", "p95_off_percent", "max_off_percent").sort(keys, nulls_last=True)


def _independent_draws() -> pl.Expr:
    """Compute how many independent draws would say as much about ``wrong_share``: those of a cell are alike.

    It is the binomial variance ÷ the variance between cells, less the degrees of freedom of few cells (Korn and
    Graubard, Survey Methodology 24, 1998). Where no draw is wrong, or all are, each cell counts as one.
    """
    share, draws, cells = pl.col("wrong_share"), pl.col("draws"), pl.col("cells")
    off = pl.col("_squares") - 2 * share * pl.col("_products") + share**2 * pl.col("_sizes")
    variance = off.clip(0.0) * cells / (cells - 1) / draws**2
    mixed = (share > 0) & (share < 1)
    known = pl.when(mixed).then(pl.min_horizontal(share * (1 - share) / variance, draws)).otherwise(cells)
    return known * (normal_quantile() / of_sessions(cells)) ** 2


def _single_sessions(draws: pl.DataFrame) -> pl.DataFrame:
    """List the workloads of which one session alone was wrong, each with its worst session, the worst first."""
    wrong = draws.filter((pl.col("sessions") == 1) & pl.col("wrong"))
    return (
        wrong.with_columns(wrong_sessions=pl.len().over("place"))
        .sort("finding", "off_percent", "place", descending=[False, True, False])
        .unique("place", keep="first", maintain_order=True)
        .with_columns(
            sessions="most",
            session="draw_session",
            session_verdict="draw_verdict",
            session_speedup="draw_speedup",
            speedup_low="verdict_low",
            speedup_high="verdict_high",
        )
        .select(SINGLE_SESSIONS)
    )


def _left_out(unknown: int, objected: pl.DataFrame, few: int) -> Iterator[str]:
    if unknown:
        yield f"{unknown:,} workloads are left out: they have no verdict, since they did not pass or were not timed."
    if not objected.is_empty():
        reasons = objected["verdict_reason"].cast(pl.String).value_counts(sort=True, name="n").sort("verdict_reason")
        told = ", ".join(f"{reason} {count:,}" for reason, count in reasons.rows())
        yield f"{objected.height:,} workloads are left out: their verdict rests on an objection ({told})."
    if few:
        yield f"{few:,} workloads are left out: they have fewer than {FEWEST_SESSIONS} timed sessions."


def _sampled(workloads: pl.DataFrame) -> Iterator[str]:
    most = int(workloads["session"].list.len().to_numpy().max())
    if any(math.comb(most, count) > MOST_DRAWS for count in range(2, most)):
        yield (
            f"Of a workload's sessions, at most {MOST_DRAWS} combinations of each number are drawn, at random and the "
            "same ones each time."
        )


def _statements(rows: pl.DataFrame) -> Iterator[str]:
    """Say how often one session is right, and how often the most of fewer are; ``rows`` are of all slices together."""
    first, *_others = counts = rows.to_dicts()
    yield (
        f"One session alone agrees with all in {_share(first, 'agree')} of {first['draws']:,} draws from "
        f"{first['workloads']:,} workloads, is undecided in {_share(first, 'undecided')}, and wrong in "
        f"{_wrong(first)}: {first['unconfirmed']:,} unconfirmed, {first['contradicted']:,} contradicted. Its speed-up "
        f"is off by {rough_percent(first['median_off_percent'] / 100)} in the median, and by at most "
        f"{rough_percent(first['p95_off_percent'] / 100)} in 95 % of the draws."
    )
    if len(counts) > 1:
        last = counts[-1]
        yield (
            f"With {last['sessions']} sessions of the {last['workloads']:,} workloads that have more, "
            f"{_share(last, 'undecided')} of the draws are undecided, and {_wrong(last)} are wrong."
        )


def _share(row: dict[str, Any], finding: str) -> str:
    return rough_percent(row[finding] / row["draws"])


def _wrong(row: dict[str, Any]) -> str:
    """Write the share of wrong draws with its interval."""
    share = rough_percent(row["wrong_share"])
    if row["wrong_low"] is None:
        return share
    return f"{share} (95 % interval {rough_percent(row['wrong_low'])} to {rough_percent(row['wrong_high'])})"


_ABOUT_ROWS: Final = "Of each workload, the row is about the worst of these sessions; `wrong_sessions` counts them."

_MEANINGS: Final = {
    "sessions": "sessions of a draw; only workloads that have more count",
    "cells": "cells (attempts) of these workloads",
    "workloads": "workloads, each of one cell, with at least 3 timed sessions and a verdict that rests on no objection",
    "draws": "choices of so many of a workload's sessions, each with a verdict: that of the session alone, or of the "
    "speed-ups of several",
    "agree": "draws with the verdict of all sessions; the drawn ones are among these, so this is more than with others",
    "undecided": "draws that are inconclusive where all sessions decide",
    "unconfirmed": "draws that are faster or slower where all are inconclusive or equivalent, or equivalent where all "
    "are inconclusive",
    "contradicted": "draws that are faster or slower where all say the opposite, or equivalent where all say either",
    "wrong_share": "(unconfirmed + contradicted) ÷ draws",
    "wrong_low": "lower bound of its 95 % interval, over cells: Wilson's for as many independent draws as vary like "
    "these (Korn and Graubard 1998); null for a single cell",
    "wrong_high": "upper bound of it",
    "median_off_percent": "median distance of a draw's speed-up from that of all sessions, in percent of the smaller",
    "p95_off_percent": "distance that 95 % of the draws do not exceed",
    "max_off_percent": "largest distance",
}

_MEANINGS_OF_SINGLE: Final = {
    "finding": "contradicted or unconfirmed, as in the table above",
    "verdict": "verdict of all sessions",
    "speedup": "speed-up of all sessions: geometric mean",
    "speedup_low": "lower bound of its 95 % interval",
    "speedup_high": "upper bound of it",
    "session_verdict": "verdict of the one session",
    "session_speedup": "its speed-up",
    "off_percent": "distance of the two speed-ups, in percent of the smaller",
    "session": "number of the session within the attempt, from 0",
    "wrong_sessions": "sessions of this workload that alone are contradicted or unconfirmed",
    "sessions": "timed sessions of this workload",
}
