"""Scores of candidates: rates of correctness, speed-ups, ``fast_p``, ``pass@k`` and costs.

Two units. *Rates* are over cells: one kernel on one problem, dtype, GPU and toolchain, which passes only if all its
workloads do. A cell measured on several hosts or units of a GPU counts once on each. *Speed-ups* are over outcomes: one
workload of such a cell. Where a cell needs one speed-up (``fast_p``), it is the geometric mean over its workloads.

Controls, which are declared to fail, and references are scored apart, unless the slices separate them or there is
nothing else. A mean speed-up is over problems, each of which is the mean of its workloads and kernels.

A cell counts if it passed or failed by its candidate's fault. All others (infrastructure failure, invalid problem,
unsupported, only compiled or verified) are in no denominator; their number is reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from kernel_matrix.analysis.generated_kernels import GENERATOR, PLACE
from kernel_matrix.analysis.outcomes import CELL_KEY, ended_as_declared, ordinary, outcomes
from kernel_matrix.analysis.quantiles import of_sessions
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.slices import columns_of
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.analysis.timed_sessions import ALL, SLICE
from kernel_matrix.errors import NothingSelectedError, UsageError
from kernel_matrix.model.enums import Fault, Status, Tier, Verdict

Floats = npt.NDArray[np.float64]

_NEEDED: Final = (
    "record", "workload", *PLACE, "candidate", "candidate_sha256", *GENERATOR, "origin_sample", "origin_round",
    "origin_tokens_in", "origin_tokens_out", "origin_cost_usd",
    "status", "tier", "expect", "candidate_kind",
    "fault", "verdict", "speedup_low", "speedup_high", "counted", "compiled", "passed",
)  # fmt: skip
_OF_WORKLOADS: Final = {"workload", "verdict", "speedup_low", "speedup_high"}
"""Columns of ``_NEEDED`` that differ between the workloads of a cell."""
_OF_KERNELS: Final = {"candidate", "method", "model", "prompt", "round", "language"}
"""Slices that separate kernels: their matched subset is of problems."""
_OF_PROBLEMS: Final = ("category", "level", "source", "problem", "ranks", "workload", "matrix")
"""Slices that separate problems: matching is possible only within each."""
_UNCOUNTED: Final = {
    "infra": (pl.col("fault") == Fault.INFRA.value, "infrastructure failures"),
    "invalid_problem": (pl.col("fault") == Fault.PROBLEM.value, "invalid problems"),
    "unsupported": (pl.col("fault") == Fault.UNSUPPORTED.value, "unsupported"),
    "only_compiled": (pl.col("status") == Status.COMPILED.value, "only compiled"),
    "only_verified": (
        (pl.col("tier") == Tier.VALUES.value) & pl.col("fault").is_in([Fault.NONE.value, Fault.CANDIDATE.value]),
        "not to be timed",
    ),
}
"""Column → the uncounted cells that it counts, and their name in notes."""
_ENERGY: Final = (
    "Energies are of replayed calls on a busy board, its idle power included. That all calls were made is a claim of"
    " the candidate's process."
)
_ROUNDING: Final = 1e-12
"""Tolerance for the rounding of logarithms: a speed-up that equals p up to rounding is not above p."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """The rows to score, and their slices."""

    rows: pl.DataFrame
    """One per outcome: ``_NEEDED``, the slicing columns, and ``ratio``, the speed-up if positive and finite."""
    by: list[str]
    thresholds: tuple[float, ...]

    def with_problem(self) -> list[str]:
        """Return the columns of a problem in a slice; each problem has the same weight in a mean speed-up."""
        return list(dict.fromkeys((*self.by, "problem")))

    def key(self, *further: str) -> list[str]:
        """Return the columns of a task (slice, target and generator) and ``further`` ones."""
        return list(dict.fromkeys((*self.by, *PLACE, *GENERATOR, *further)))


def scores(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Compute rates, speed-ups, ``fast_p``, ``pass@k``, ``fast_p@N``, costs and energies, per slice.

    Raises:
        UsageError: A threshold or a number of draws is invalid.
        NothingSelectedError: The tables hold no cell.
    """
    _check(request)
    everything = _scope(tables, request)
    all_cells = _cells(everything)
    scope, cells = (everything, all_cells) if "kind" in request.by else _without_controls(everything, all_cells)
    samples = _samples(scope, cells)
    rates = _rates(scope, cells)
    if cells.height < all_cells.height:
        aside = "Controls, which are declared to fail, and references are in the table apart only."
        rates = replace(rates, notes=[aside, *rates.notes])
    return [
        rates,
        _draws(scope, samples, request.draws),
        _rounds(scope, samples),
        _costs(scope, cells),
        *_energy(scope, tables),
        _apart(all_cells),
    ]


def rate_gpus(tables: Tables, thresholds: Sequence[float]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Compute the table ``scores`` by GPU and for all GPUs together, from the same cells.

    Raises:
        NothingSelectedError: The tables hold no cell.
    """
    everything = _scope(tables, QuestionOptions(by=("gpu",), thresholds=tuple(thresholds)))
    scope, cells = _without_controls(everything, _cells(everything))
    one_slice = pl.lit(ALL).alias(SLICE)
    together = replace(scope, rows=scope.rows.with_columns(one_slice), by=[SLICE])
    return _rates(scope, cells).table, _rates(together, cells.with_columns(one_slice)).table


def _without_controls(scope: _Scope, cells: pl.DataFrame) -> tuple[_Scope, pl.DataFrame]:
    return replace(scope, rows=ordinary(scope.rows)), ordinary(cells)


def _check(request: QuestionOptions) -> None:
    if any(not math.isfinite(p) or p < 0 for p in request.thresholds):
        raise UsageError("a threshold of fast_p must be a number ≥ 0", next_step="Give for example 0, 1 and 2.")
    if any(k < 1 for k in request.draws):
        raise UsageError("the k of pass@k must be a whole number ≥ 1", next_step="Give for example 1, 5 and 10.")


def _scope(tables: Tables, request: QuestionOptions) -> _Scope:
    columns = columns_of(request.by)
    named = [pl.col(column).alias(name) for name, column in zip(request.by, columns, strict=True)]
    own = [pl.col(name) for name in _NEEDED if name not in request.by]
    ratio = pl.when(pl.col("passed") & pl.col("speedup").is_finite() & (pl.col("speedup") > 0)).then("speedup")
    rows = (
        outcomes(tables.cells)
        .select(*own, *(named or [pl.lit(ALL).alias(SLICE)]), ratio.alias("ratio"))
        .collect(engine="streaming")
    )
    if rows.is_empty():
        raise NothingSelectedError("the tables hold no cell", next_step="Name a folder with results.")
    return _Scope(rows, list(request.by) or [SLICE], tuple(sorted(set(request.thresholds))))


def _cells(scope: _Scope) -> pl.DataFrame:
    """Make one row per judged cell of each slice; ``ratio`` is the geometric mean over its workloads."""
    keys = ["record", "workload"] if "workload" in scope.by else ["record"]
    taken = [name for name in dict.fromkeys((*_NEEDED, *scope.by)) if name not in {"record", *_OF_WORKLOADS}]
    return (
        scope.rows.lazy()
        .group_by(keys)
        .agg(*(pl.col(name).first() for name in taken), pl.col("ratio").log().mean().exp())
        .collect(engine="streaming")
    )


def _above(threshold: float) -> pl.Expr:
    """Flag cells that are correct with a speed-up above ``threshold`` (0: just correct); null if not counted."""
    if threshold == 0:
        return pl.col("passed")
    return pl.col("passed") & (pl.col("ratio") > threshold * (1 + _ROUNDING)).fill_null(False)


def _rates(scope: _Scope, cells: pl.DataFrame) -> Answer:
    """Compute counts, rates, ``fast_p`` and the mean speed-up."""
    counted, correct = pl.col("counted").sum(), pl.col("passed").sum()
    known = (correct == 0) | (pl.col("ratio").count() > 0)
    fast = {
        f"fast_{p:g}": pl.when(counted > 0, known if p else True).then(_above(p).sum() / counted)
        for p in scope.thresholds
    }
    rates = cells.group_by(scope.by).agg(
        pl.col("problem").n_unique().alias("problems") if "problem" not in scope.by else pl.lit(1).alias("problems"),
        pl.len().alias("cells"),
        counted.alias("counted"),
        pl.when(counted > 0).then(pl.col("compiled").sum() / counted).alias("compile_rate"),
        pl.when(counted > 0).then(correct / counted).alias("correct_rate"),
        **fast,
    )
    uncounted = cells.group_by(scope.by).agg(
        (~pl.col("counted") & which).sum().alias(name) for name, (which, _label) in _UNCOUNTED.items()
    )
    timed = scope.rows.filter(pl.col("ratio").is_not_null())
    directions = _directions()
    by_problem = timed.group_by(scope.with_problem()).agg(
        pl.len().alias("timed"),
        pl.col("ratio").log().mean().alias("log"),
        *(is_so.sum().alias(word) for word, is_so in directions.items()),
    )
    speeds = by_problem.group_by(scope.by).agg(
        pl.col("timed").sum(),
        **_mean_over_problems("speedup", "speedup_low", "speedup_high"),
        **{f"share_{word}": pl.col(word).sum() / pl.col("timed").sum() for word in directions},
    )
    table = rates.join(speeds, on=scope.by, how="left", nulls_equal=True).with_columns(pl.col("timed").fill_null(0))
    matched = _matched(scope, timed)
    if matched is not None:
        table = table.join(matched, on=scope.by, how="left", nulls_equal=True)
        table = table.with_columns(pl.col("matched").fill_null(0))
    table = table.join(uncounted, on=scope.by, how="left", nulls_equal=True)
    return Answer(
        name="scores",
        title="Correctness and speed",
        table=table.sort(scope.by, nulls_last=True),
        meanings=_MEANINGS | {f"fast_{p:g}": _FAST_MEANING.format(p=p) for p in scope.thresholds},
        notes=[*_rate_notes(cells), *_speed_notes(timed, scope, matched)],
    )


def _directions() -> dict[str, pl.Expr]:
    """Flag outcomes that are faster and slower than the baseline, by verdict, else by interval, else by ratio."""
    ratio = pl.col("ratio")
    without_verdict = {
        Verdict.FASTER.value: (pl.col("speedup_low") > 1, ratio > 1 + _ROUNDING),
        Verdict.SLOWER.value: (pl.col("speedup_high") < 1, ratio < 1 - _ROUNDING),
    }
    return {
        word: pl.when(pl.col("verdict").is_not_null())
        .then(pl.col("verdict") == word)
        .when(pl.col("speedup_high").is_not_null())
        .then(by_interval)
        .otherwise(by_ratio)
        for word, (by_interval, by_ratio) in without_verdict.items()
    }


def _energy(scope: _Scope, tables: Tables) -> Iterator[Answer]:
    """Compute the mean ratio of energies; no answer where no energy is known, which is the usual case."""
    ratio = pl.col("energy_ratio").log()
    counted = (
        tables.cells.filter(pl.col("energy_ratio") > 0)
        .group_by("record", "workload")
        .agg(ratio.mean().alias("log"))
        .collect(engine="streaming")
    )
    by_problem = (
        scope.rows.filter("passed")
        .join(counted, on=["record", "workload"], how="inner")
        .group_by(scope.with_problem())
        .agg(pl.len().alias("workloads"), pl.col("log").mean())
    )
    if by_problem.is_empty():
        return
    table = by_problem.group_by(scope.by).agg(
        pl.len().cast(pl.Int64).alias("problems"),
        pl.col("workloads").sum().cast(pl.Int64),
        **_mean_over_problems("energy_ratio", "low", "high"),
    )
    yield Answer(
        name="energy",
        title="Energy of a call, against the baseline's",
        table=table.sort(scope.by, nulls_last=True),
        meanings={
            "problems": "problems of which workloads count",
            "workloads": "workloads that passed and whose energy is known of both sides",
            "energy_ratio": "geometric mean over problems of baseline ÷ candidate, joules of a call: so much more is"
            " done per watt",
            "low": _LOW,
            "high": "upper end",
        },
        notes=[_ENERGY],
    )


def _mean_over_problems(mean: str, low: str, high: str) -> dict[str, pl.Expr]:
    """Compute the geometric mean of ratios whose logarithms by problem are ``log``, and its 95 % *t* interval."""
    log = pl.col("log")
    reach = log.std() / pl.len().sqrt() * of_sessions(pl.len())
    return {mean: log.mean().exp(), low: (log.mean() - reach).exp(), high: (log.mean() + reach).exp()}


def _apart(cells: pl.DataFrame) -> Answer:
    """Count cells of each kind that ended as declared, and otherwise."""
    as_declared = ended_as_declared()
    table = cells.group_by(kind="candidate_kind").agg(
        pl.len().alias("cells"),
        as_declared.sum().alias("as_declared"),
        (pl.col("counted") & ~as_declared).sum().alias("otherwise"),
    )
    return Answer(
        name="apart",
        title="Cells that end as they are declared to",
        table=table.sort("kind"),
        meanings={
            "kind": "reference: the problem's own, as a candidate; control: declared to fail; candidate: all others",
            "cells": "cells that were attempted",
            "as_declared": "cells whose status is the declared one; passed, unless another is declared",
            "otherwise": "cells that count and ended with another status",
        },
    )


def _matched(scope: _Scope, timed: pl.DataFrame) -> pl.DataFrame | None:
    """Compute geometric means over what every slice has a correct time for; None if slices have nothing in common.

    Without matching, a side that fails at the hard problems looks fast, since failures have no time. Matched
    are kernels on a problem, or only problems where the slices hold different kernels. Each problem has the same
    weight.
    """
    within = [name for name in scope.by if name in _OF_PROBLEMS]
    across = [name for name in scope.by if name not in {*_OF_PROBLEMS, SLICE}]
    if not across or timed.select(pl.struct(scope.by).n_unique()).item() < 2:
        return None
    free = {"candidate"} if _OF_KERNELS & set(across) else set()
    key = [name for name in CELL_KEY if name not in scope.by and name not in free]
    within = within or [SLICE]
    once = (
        timed.with_columns(pl.lit(ALL).alias(SLICE))
        .group_by([*within, *across, *key])
        .agg(pl.col("ratio").log().mean().alias("log"))
    )
    sides = once.group_by(within).agg(pl.struct(across).n_unique().alias("sides"))
    present = once.group_by([*within, *key]).agg(pl.len().alias("present"))
    shared = present.join(sides, on=within, nulls_equal=True).filter(pl.col("present") == pl.col("sides"))
    return (
        once.join(shared, on=[*within, *key], how="semi", nulls_equal=True)
        .group_by(scope.with_problem())
        .agg(pl.col("log").mean(), pl.len().alias("matched"))
        .group_by(scope.by)
        .agg(pl.col("log").mean().exp().alias("speedup_matched"), pl.col("matched").sum())
    )


def _rate_notes(cells: pl.DataFrame) -> Iterator[str]:
    yield (
        "Rates are over cells (a kernel × problem × dtype × GPU × toolchain, on each host and unit that ran it), each"
        " judged with all its workloads; speed-ups are over workloads of cells that passed."
    )
    out = cells.filter(~pl.col("counted"))
    if not out.is_empty():
        counts = out.select(which.sum().alias(name) for name, (which, _label) in _UNCOUNTED.items()).row(0, named=True)
        parts = [f"{counts[name]} {label}" for name, (_which, label) in _UNCOUNTED.items() if counts[name]]
        yield f"{out.height} of {cells.height} cells do not count: {', '.join(parts)}."
    if out.height == cells.height:
        yield "No cell counts: every rate is unknown, not 0."
    untimed = cells.select((pl.col("passed") & pl.col("ratio").is_null()).sum()).item()
    if untimed:
        yield (
            f"{untimed} cells passed without a positive, finite speed-up: for p > 0 they count as not faster, so"
            " fast_p is a lower bound."
        )


def _speed_notes(timed: pl.DataFrame, scope: _Scope, matched: pl.DataFrame | None) -> Iterator[str]:
    if timed.is_empty():
        yield "Nothing that passed was timed: there is no speed-up."
        return
    verdicts = timed["verdict"].count()
    intervals = timed.select((pl.col("verdict").is_null() & pl.col("speedup_high").is_not_null()).sum()).item()
    yield (
        f"Faster and slower than the baseline are decided by the verdict of {verdicts} workloads, by the 95 %"
        f" interval over sessions of {intervals} more, and by the ratio alone of the other"
        f" {timed.height - verdicts - intervals}."
    )
    if scope.by == [SLICE]:
        return
    if matched is None:
        yield "Failures have no time, and these slices have nothing in common: do not compare their mean speed-ups."
    else:
        yield (
            "Failures have no time: compare slices by speedup_matched, which is over what every slice that was timed"
            " has a correct time for."
        )


def _samples(scope: _Scope, cells: pl.DataFrame) -> pl.DataFrame:
    """Make one row per kernel of each task (slice × place × generator); it passes if it passes on all hosts and units.

    Kernels with the same ``origin_sample`` and ``alone`` are one sample; ``alone`` is the candidate's name if it gives
    neither sample nor round, so that it is a sample of its own.
    """
    return (
        cells.lazy()
        .filter("counted")
        .group_by(scope.key("candidate"))
        .agg(
            pl.col("passed").all(),
            pl.col("ratio").log().mean().exp(),
            pl.col("origin_sample").first(),
            pl.col("origin_round").first(),
        )
        .with_columns(
            alone=pl.when(pl.all_horizontal(pl.col("origin_sample", "origin_round").is_null())).then("candidate")
        )
        .collect(engine="streaming")
    )


def _draws(scope: _Scope, samples: pl.DataFrame, draws: Sequence[int]) -> Answer:
    """Compute ``pass@k`` and ``fast_p@k``."""
    task = scope.key()
    hits = [f"hit_{number}" for number in range(len(scope.thresholds))]
    tasks = (
        samples.lazy()
        .group_by([*task, "origin_sample", "alone"])
        .agg(_above(p).any().alias(hit) for hit, p in zip(hits, scope.thresholds, strict=True))
        .group_by(task)
        .agg(pl.len().alias("n"), *(pl.col(hit).sum() for hit in hits))
        .group_by([*scope.by, "n", *hits])
        .agg(pl.len().alias("tasks"))
        .collect(engine="streaming")
    )
    parts = [
        _drawn(tasks, scope.by, k, p, hit)
        for k in sorted(set(draws))
        for hit, p in zip(hits, scope.thresholds, strict=True)
    ]
    table = pl.concat(parts).sort([*scope.by, "k", "p"], nulls_last=True) if parts else pl.DataFrame()
    return Answer(
        name="draws",
        title="At least one of k draws: pass@k (p = 0) and fast_p@k",
        table=table,
        meanings={
            "k": "samples drawn",
            "p": "the speed-up that one of them must exceed; 0: it only has to be correct",
            "share": "mean over tasks of 1 − C(n−c, k) / C(n, k) with n samples, c of them hits (Chen et al.,"
            " Evaluating Large Language Models Trained on Code, 2021)",
            "tasks": "problem × dtype × GPU × toolchain × method × model × prompt with k samples or more",
            "left_out": "tasks with fewer samples",
        },
        notes=list(_draw_notes(table)),
    )


def _drawn(tasks: pl.DataFrame, by: Sequence[str], k: int, p: float, hit: str) -> pl.DataFrame:
    """Compute the share for one ``k`` and one ``p``, per slice."""
    chance = at_least_one(tasks["n"].to_numpy(), tasks[hit].to_numpy(), k)
    enough = pl.col("n") >= k
    weighed = (pl.col("chance") * pl.col("tasks")).filter(enough).sum()
    number = pl.col("tasks").filter(enough).sum()
    return (
        tasks.with_columns(chance=pl.Series(chance, dtype=pl.Float64))
        .group_by(by)
        .agg(
            pl.lit(k, pl.Int64).alias("k"),
            pl.lit(p, pl.Float64).alias("p"),
            pl.when(number > 0).then(weighed / number).alias("share"),
            number.cast(pl.Int64).alias("tasks"),
            pl.col("tasks").filter(~enough).sum().cast(pl.Int64).alias("left_out"),
        )
    )


def at_least_one(n: npt.ArrayLike, c: npt.ArrayLike, k: int) -> Floats:
    """Compute ``pass@k``: the probability that k of n samples, drawn without replacement, include one of c that pass.

    1 − C(n−c, k) / C(n, k), as a product that neither over- nor underflows. An unbiased estimate for k fresh samples,
    unlike 1 − (1 − c/n)^k (Chen et al., *Evaluating Large Language Models Trained on Code*, 2021).

    Args:
        n: Samples per task.
        c: Samples that pass, per task.
        k: Draws, at least 1.

    Returns:
        One probability per task; NaN where n < k.
    """
    samples, wrong = np.broadcast_arrays(np.asarray(n, dtype=np.float64), np.asarray(n, float) - np.asarray(c, float))
    enough = samples >= k
    none = np.ones(samples.shape)
    for drawn in range(min(k, int(samples.max(initial=0)))):
        none *= np.clip(wrong - drawn, 0, None) / np.clip(samples - drawn, 1, None)
    return np.where(enough, 1 - none, np.nan)


def _draw_notes(table: pl.DataFrame) -> Iterator[str]:
    yield (
        "A sample is one draw from a method, model and prompt for a problem. Candidates with the same origin sample are"
        " one sample, with the best of its refinement rounds, as are those with a round and no sample; any other"
        " candidate is a sample of its own. On several hosts or units a sample passes if it passes on all."
    )
    if table.is_empty():
        return
    first = table.filter(pl.col("p") == pl.col("p").min()).group_by("k").agg(pl.col("left_out").sum()).sort("k")
    left_out = [f"{row['left_out']} at k = {row['k']}" for row in first.to_dicts() if row["left_out"]]
    if left_out:
        yield f"Tasks with fewer than k samples are left out: {', '.join(left_out)}."


def _rounds(scope: _Scope, samples: pl.DataFrame) -> Answer:
    """Compute ``fast_p@N``: the best of the rounds up to N."""
    meanings = {
        "round": "N: rounds up to this one",
        "attempts": "problem × dtype × GPU × toolchain × method × model × prompt × sample, with a counted round up to"
        " N",
        "fast_p": "share of them with a round up to N that is correct and has a speed-up above p; p = 0: correct"
        " (KernelBench, Ouyang et al. 2025)",
    }
    known = samples.filter(pl.col("origin_round").is_not_null())
    if "round" in scope.by or known.is_empty():
        why = "these slices are rounds already" if "round" in scope.by else "no candidate names its round"
        return Answer(
            name="rounds", title="Best of the rounds up to N: fast_p@N", table=pl.DataFrame(), meanings=meanings,
            notes=[f"There is no result for refinement: {why}."],
        )  # fmt: skip
    attempt = scope.key("origin_sample")
    names = ["attempts", *(f"fast_{p:g}" for p in scope.thresholds)]
    conditions = [pl.lit(True), *(_above(p) for p in scope.thresholds)]
    first = known.group_by(attempt).agg(
        pl.col("origin_round").filter(condition).min().alias(name)
        for name, condition in zip(names, conditions, strict=True)
    )
    grid = first.select(scope.by).unique().join(known.select(round=pl.col("origin_round")).unique(), how="cross")
    grid = grid.sort([*scope.by, "round"], nulls_last=True)
    table = reduce(lambda so_far, name: _reached(so_far, first, scope.by, name), names, grid)
    shares = [pl.when(pl.col("attempts") > 0).then(pl.col(name) / pl.col("attempts")).alias(name) for name in names[1:]]
    unknown = samples.height - known.height
    notes = ["An attempt that ended before round N keeps its best; one that starts after round N does not count there."]
    if unknown:
        notes.append(f"{unknown} of {samples.height} kernels name no round and are left out.")
    return Answer(
        name="rounds",
        title="Best of the rounds up to N: fast_p@N",
        table=table.with_columns(shares),
        meanings=meanings,
        notes=notes,
    )


def _reached(grid: pl.DataFrame, first: pl.DataFrame, by: Sequence[str], name: str) -> pl.DataFrame:
    """Add to ``grid`` the number of attempts in ``first`` that reached ``name`` in its round or before."""
    new = first.group_by([*by, pl.col(name).alias("round")]).agg(pl.len().cast(pl.Int64).alias(name))
    joined = grid.join(new, on=[*by, "round"], how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(pl.col(name).fill_null(0).cum_sum().over(by))


def _costs(scope: _Scope, cells: pl.DataFrame) -> Answer:
    """Compute tokens and dollars per correct kernel: the cost of all kernels ÷ the number of correct ones."""
    kernels = (
        cells.lazy()
        .filter("counted")
        .group_by(list(dict.fromkeys((*scope.by, "candidate", "candidate_sha256"))))
        .agg(
            pl.col("passed").all(),
            (pl.col("origin_tokens_in") + pl.col("origin_tokens_out")).first().cast(pl.Float64).alias("tokens"),
            pl.col("origin_cost_usd").first().alias("usd"),
        )
        .collect(engine="streaming")
    )
    known = {name: pl.col(name).is_not_null() for name in ("tokens", "usd")}
    table = kernels.group_by(scope.by).agg(
        pl.len().alias("kernels"),
        pl.col("passed").sum().alias("correct"),
        *(known[name].sum().alias(f"{name}_known") for name in known),
        *(pl.when(known[name].any()).then(pl.col(name).sum()).alias(name) for name in known),
        *(_per_correct(name, known[name]).alias(f"{name}_per_correct") for name in known),
    )
    unknown = kernels.select(tokens=pl.col("tokens").is_null().sum(), usd=pl.col("usd").is_null().sum()).row(0)
    notes = ["A kernel is correct if it passes every cell of the slice that counts; its cost counts once."]
    for what, number in zip(("tokens", "dollars"), unknown, strict=True):
        if number:
            notes.append(f"{number} of {kernels.height} kernels do not state their {what}, and are left out of them.")
    return Answer(
        name="costs",
        title="Cost of a correct kernel",
        table=table.sort(scope.by, nulls_last=True),
        meanings={
            "kernels": "distinct candidates that count",
            "correct": "kernels that are correct",
            "tokens_known": "kernels that state their tokens",
            "usd_known": "kernels that state their dollars",
            "tokens": "tokens read and written by the model for all kernels that state them, cached ones included",
            "tokens_per_correct": "over kernels with known tokens: all tokens ÷ number of correct ones; null without"
            " a correct one",
            "usd": "US dollars for all kernels that state them",
            "usd_per_correct": "the same for US dollars",
        },
        notes=notes,
    )


def _per_correct(name: str, known: pl.Expr) -> pl.Expr:
    correct = pl.col("passed").filter(known).sum()
    return pl.when(correct > 0).then(pl.col(name).sum() / correct)


_FAST_MEANING: Final = (
    "share of counted cells that are correct and more than {p:g} times as fast as the baseline (KernelBench fast_p)"
)

_LOW: Final = "lower end of its 95 % interval, as problems like these vary; one problem has none"

_MEANINGS: Final = {
    "problems": "distinct problems",
    "cells": "cells that were attempted, by their latest attempt",
    "counted": "cells that passed or failed by the candidate's fault: the denominator of every rate",
    "infra": "not counted: infrastructure failures",
    "invalid_problem": "not counted: the problem fails its own controls",
    "unsupported": "not counted: cannot run there, as known beforehand",
    "only_compiled": "not counted: built for a GPU that is not in this host",
    "only_verified": "not counted: the tier compares outputs, and times nothing",
    "compile_rate": "share of counted cells whose candidate could be built",
    "correct_rate": "share of counted cells that passed",
    "timed": "workloads of passed cells that have a speed-up: the n of speedup, share_faster and share_slower",
    "speedup": "geometric mean of baseline ÷ candidate over them, exp(mean(log s)) (Fleming & Wallace, CACM 29, 1986):"
    " first within each problem, then over problems",
    "speedup_low": _LOW,
    "speedup_high": "upper end",
    "share_faster": "share of them that are faster than the baseline",
    "share_slower": "share of them that are slower than the baseline",
    "speedup_matched": "geometric mean over what every slice has a correct time for",
    "matched": "number of items that speedup_matched is over",
}
