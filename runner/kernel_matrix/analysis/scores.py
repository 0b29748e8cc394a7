"""How often candidates are right, and how fast those are that are right: the scores the field quotes.

Two units. *Rates* are over cells: one kernel on one problem, dtype, GPU and toolchain, judged with all its workloads at
once, so that a cell passes only where every workload does. A cell measured on several hosts or units of a GPU counts
once on each. *Speed-ups* are over outcomes: one workload of such a cell. Where a cell needs one speed-up (``fast_p``),
it is the geometric mean over its workloads.

A cell counts when it passed or failed by its candidate's own fault. Everything else (the machine, the problem, what
cannot run there, what was only compiled) is in no denominator, and how much of it there was is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from kernel_matrix.analysis.outcomes import CELL_KEY, outcomes
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.slices import columns_of
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.analysis.timed_sessions import ALL, SLICE
from kernel_matrix.errors import NothingSelectedError, UsageError
from kernel_matrix.model.enums import Fault, Verdict

Floats = npt.NDArray[np.float64]

_PLACE: Final = ("problem", "dtype", "gpu", "toolchain")
"""With a workload where it is sliced by: what a generator is asked to write a kernel for."""
_GENERATOR: Final = ("origin_method", "origin_model")
_NEEDED: Final = (
    *("record", "workload", *_PLACE, "candidate", "candidate_sha256", *_GENERATOR, "origin_sample", "origin_round"),
    *("origin_tokens_in", "origin_tokens_out", "origin_cost_usd"),
    *("fault", "verdict", "speedup_high", "counted", "compiled", "passed"),
)
_OF_WORKLOADS: Final = {"workload", "verdict", "speedup_high"}
"""Of ``_NEEDED``, what a cell does not have."""
_OF_KERNELS: Final = {"candidate", "method", "model", "round", "language"}
"""Slices whose sides hold different kernels, so that a matched subset is one of problems."""
_OF_PROBLEMS: Final = ("category", "level", "source", "problem", "workload", "matrix")
"""Slices whose sides hold different problems: nothing can be matched across them, only within each."""
_UNCOUNTED: Final = {
    "infra": (pl.col("fault") == Fault.INFRA.value, "the machine's"),
    "invalid_problem": (pl.col("fault") == Fault.PROBLEM.value, "the problem's"),
    "unsupported": (pl.col("fault") == Fault.UNSUPPORTED.value, "not supported there"),
    "only_compiled": (pl.col("fault") == Fault.NONE.value, "only compiled"),
}
"""Column → which of the cells that do not count it counts, and how a note says it."""
_ROUNDING: Final = 1e-12
"""A speed-up went through logarithms; one that is p but for their rounding is not above p."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """The rows that are asked about, and how they are sliced."""

    rows: pl.DataFrame
    """One per outcome: ``_NEEDED``, the slicing columns, and ``ratio``, the speed-up where it is a positive number."""
    by: list[str]
    thresholds: tuple[float, ...]

    @property
    def place(self) -> list[str]:
        """What a task is made of, beside the slice and the generator."""
        workload = ["workload"] if "workload" in self.by else []
        return [name for name in (*_PLACE, *workload) if name not in self.by]


def scores(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Rates, speed-ups, ``fast_p``, ``pass@k``, ``fast_p@N`` and the cost of a correct kernel, per slice.

    :raises UsageError: for a threshold or a number of draws that is none.
    :raises NothingSelectedError: where the tables hold no cell.
    """
    _check(request)
    scope = _scope(tables, request)
    cells = _cells(scope)
    samples = _samples(scope, cells)
    return [_rates(scope, cells), _draws(scope, samples, request.draws), _rounds(scope, samples), _costs(scope, cells)]


def _check(request: QuestionOptions) -> None:
    if any(not math.isfinite(p) or p < 0 for p in request.thresholds):
        raise UsageError("a threshold of fast_p is a number from 0 on", next_step="Give for example 0, 1 and 2.")
    if any(k < 1 for k in request.draws):
        raise UsageError("the k of pass@k is a whole number from 1 on", next_step="Give for example 1, 5 and 10.")


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
    """One row per judged cell of each slice; ``ratio`` is the geometric mean over its workloads."""
    keys = ["record", "workload"] if "workload" in scope.by else ["record"]
    taken = [name for name in dict.fromkeys((*_NEEDED, *scope.by)) if name not in {"record", *_OF_WORKLOADS}]
    return (
        scope.rows.lazy()
        .group_by(keys)
        .agg(
            *(pl.col(name).first() for name in taken),
            pl.col("ratio").log().mean().exp(),
        )
        .collect(engine="streaming")
    )


def _above(threshold: float) -> pl.Expr:
    """Whether a cell is correct and faster than ``threshold`` times; correctness alone for 0. Null: not counted."""
    if threshold == 0:
        return pl.col("passed")
    return pl.col("passed") & (pl.col("ratio") > threshold * (1 + _ROUNDING)).fill_null(False)


# Rates and speed-ups


def _rates(scope: _Scope, cells: pl.DataFrame) -> Answer:
    """Counts, rates, ``fast_p`` and the mean speed-up."""
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
        (~pl.col("counted") & which).sum().alias(name) for name, (which, _said) in _UNCOUNTED.items()
    )
    timed = scope.rows.filter(pl.col("ratio").is_not_null())
    speeds = timed.group_by(scope.by).agg(
        pl.len().alias("timed"),
        pl.col("ratio").log().mean().exp().alias("speedup"),
        _slower().mean().alias("share_slower"),
    )
    table = rates.join(speeds, on=scope.by, how="left", nulls_equal=True).with_columns(pl.col("timed").fill_null(0))
    matched = _matched(scope, timed)
    if matched is not None:
        table = table.join(matched, on=scope.by, how="left", nulls_equal=True)
        table = table.with_columns(pl.col("matched").fill_null(0))
    table = table.join(uncounted, on=scope.by, how="left", nulls_equal=True)
    return Answer(
        name="scores",
        title="Right, and how fast",
        table=table.sort(scope.by, nulls_last=True),
        meanings=_MEANINGS | {name: _fast_means(name) for name in fast},
        notes=[*_rate_notes(cells), *_speed_notes(timed, scope, matched)],
    )


def _slower() -> pl.Expr:
    """Whether an outcome is slower than the baseline, by the best evidence that it has."""
    return (
        pl.when(pl.col("verdict").is_not_null())
        .then(pl.col("verdict") == Verdict.SLOWER.value)
        .when(pl.col("speedup_high").is_not_null())
        .then(pl.col("speedup_high") < 1)
        .otherwise(pl.col("ratio") < 1 - _ROUNDING)
    )


def _matched(scope: _Scope, timed: pl.DataFrame) -> pl.DataFrame | None:
    """Geometric means over what every slice has a correct time for; null where slices cannot hold the same.

    Without it, a side that fails at the hard problems looks fast: its failures have no time. Each matched question (a
    kernel on a problem and so on; a problem alone where the slices hold different kernels) has the same weight.
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
        .group_by(scope.by)
        .agg(pl.col("log").mean().exp().alias("speedup_matched"), pl.len().alias("matched"))
    )


def _rate_notes(cells: pl.DataFrame) -> Iterator[str]:
    yield (
        "Rates are over cells (a kernel × problem × dtype × GPU × toolchain, on each host and unit that ran it), each"
        " judged with all its workloads; speed-ups are over workloads of cells that passed."
    )
    out = cells.filter(~pl.col("counted"))
    if not out.is_empty():
        counts = out.select(which.sum().alias(name) for name, (which, _said) in _UNCOUNTED.items()).row(0, named=True)
        parts = [f"{counts[name]} {said}" for name, (_which, said) in _UNCOUNTED.items() if counts[name]]
        left = f"{out.height} of {cells.height} cells"
        yield f"{left} say nothing about a candidate and do not count: {', '.join(parts)}."
    if out.height == cells.height:
        yield "No cell counts: every rate is unknown, not 0."
    untimed = cells.select((pl.col("passed") & pl.col("ratio").is_null()).sum()).item()
    if untimed:
        yield (
            f"{untimed} cells passed and have no speed-up that is a positive number: for p > 0 they count as not"
            " faster, so that fast_p is at least what is shown."
        )


def _speed_notes(timed: pl.DataFrame, scope: _Scope, matched: pl.DataFrame | None) -> Iterator[str]:
    if timed.is_empty():
        yield "Nothing that passed was timed: there is no speed-up."
        return
    verdicts = timed["verdict"].count()
    intervals = timed.select((pl.col("verdict").is_null() & pl.col("speedup_high").is_not_null()).sum()).item()
    yield (
        f"Slower than the baseline is told by the verdict of {verdicts} workloads, by the 95 % interval over sessions"
        f" of {intervals} more, and by the bare ratio of {timed.height - verdicts - intervals} without either."
    )
    if scope.by == [SLICE]:
        return
    if matched is None:
        yield "Failures have no time, and these slices hold nothing in common: their mean speed-ups cannot be compared."
    else:
        yield (
            "Failures have no time: compare slices by speedup_matched, which is over what every slice that was timed"
            " has a correct time for."
        )


# Draws: several samples per task


def _samples(scope: _Scope, cells: pl.DataFrame) -> pl.DataFrame:
    """One row per kernel of each task (slice × place × generator): over hosts and units, it passes where all pass.

    Kernels with the same ``origin_sample`` and ``alone`` are one sample; ``alone`` is the candidate's name where it
    gives neither sample nor round, so that it is a sample of its own.
    """
    keys = list(dict.fromkeys((*scope.by, *scope.place, *_GENERATOR, "candidate")))
    return (
        cells.lazy()
        .filter("counted")
        .group_by(keys)
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


def _hit(index: int) -> str:
    return f"hit_{index}"


def _draws(scope: _Scope, samples: pl.DataFrame, draws: Sequence[int]) -> Answer:
    """``pass@k`` and ``fast_p@k``."""
    task = list(dict.fromkeys((*scope.by, *scope.place, *_GENERATOR)))
    hits = [_hit(number) for number in range(len(scope.thresholds))]
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
            "p": "the speed-up that one of them has to be above; 0: it only has to be correct",
            "share": "mean over tasks of 1 − C(n−c, k) / C(n, k), n samples of which c do (Chen et al., Evaluating"
            " Large Language Models Trained on Code, 2021)",
            "tasks": "problem × dtype × GPU × toolchain × method × model with k samples or more",
            "left_out": "tasks with fewer",
        },
        notes=list(_draw_notes(table)),
    )


def _drawn(tasks: pl.DataFrame, by: Sequence[str], k: int, p: float, hit: str) -> pl.DataFrame:
    """The share for one ``k`` and one ``p``, per slice."""
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
    """``pass@k``: the chance that k of n samples, drawn without putting back, hold one of the c that pass.

    1 − C(n−c, k) / C(n, k), as a product that neither over- nor underflows. Unbiased for what k fresh samples would
    give, unlike 1 − (1 − c/n)^k (Chen et al., *Evaluating Large Language Models Trained on Code*, 2021).

    :param n: samples per task.
    :param c: of them, those that pass.
    :param k: draws, at least 1.
    :return: one chance per task; NaN where n < k.
    """
    samples, wrong = np.broadcast_arrays(np.asarray(n, dtype=np.float64), np.asarray(n, float) - np.asarray(c, float))
    enough = samples >= k
    none = np.ones(samples.shape)
    for drawn in range(min(k, int(samples.max(initial=0)))):
        none *= np.clip(wrong - drawn, 0, None) / np.clip(samples - drawn, 1, None)
    return np.where(enough, 1 - none, np.nan)


def _draw_notes(table: pl.DataFrame) -> Iterator[str]:
    yield (
        "A sample is what one draw from a method and model gave for a problem: candidates with the same origin sample"
        " are one, with the best of its refinement rounds; so are those with a round and no sample;"
        " any other candidate is a sample of its own. On"
        " several hosts or units it passes where it passes on all."
    )
    if table.is_empty():
        return
    first = table.filter(pl.col("p") == pl.col("p").min()).group_by("k").agg(pl.col("left_out").sum()).sort("k")
    said = [f"{row['left_out']} at k = {row['k']}" for row in first.to_dicts() if row["left_out"]]
    if said:
        yield f"Tasks with fewer than k samples are left out: {', '.join(said)}."


# Rounds of refinement


def _rounds(scope: _Scope, samples: pl.DataFrame) -> Answer:
    """``fast_p@N``: the best of the rounds up to N."""
    meanings = {
        "round": "N: rounds up to this one",
        "attempts": "problem × dtype × GPU × toolchain × method × model × sample, with a counted round up to N",
        "fast_p": "share of them of which a round up to N is correct and faster than p times; p = 0: correct"
        " (KernelBench, Ouyang et al. 2025)",
    }
    known = samples.filter(pl.col("origin_round").is_not_null())
    if "round" in scope.by or known.is_empty():
        why = "these slices are rounds already" if "round" in scope.by else "no candidate names its round"
        return Answer(
            name="rounds", title="Best of the rounds up to N: fast_p@N", table=pl.DataFrame(), meanings=meanings,
            notes=[f"Nothing is said of refinement: {why}."],
        )  # fmt: skip
    attempt = list(dict.fromkeys((*scope.by, *scope.place, *_GENERATOR, "origin_sample")))
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
    notes = ["An attempt that ended before round N keeps its best; one that was not reached by N is not counted there."]
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
    """``grid`` with how many of ``first`` reached ``name`` in its round or before."""
    new = first.group_by([*by, pl.col(name).alias("round")]).agg(pl.len().cast(pl.Int64).alias(name))
    joined = grid.join(new, on=[*by, "round"], how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(pl.col(name).fill_null(0).cum_sum().over(by))


# Costs


def _costs(scope: _Scope, cells: pl.DataFrame) -> Answer:
    """Tokens and dollars per correct kernel: what all of them cost, the failures too, over how many are correct."""
    kernel = list(dict.fromkeys((*scope.by, "candidate", "candidate_sha256")))
    kernels = (
        cells.lazy()
        .filter("counted")
        .group_by(kernel)
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
    notes = ["A kernel is correct where it passes every cell of the slice that counts; it is paid for once."]
    for what, number in zip(("tokens", "dollars"), unknown, strict=True):
        if number:
            notes.append(f"{number} of {kernels.height} kernels do not say their {what}: they are in neither side.")
    return Answer(
        name="costs",
        title="What a correct kernel costs",
        table=table.sort(scope.by, nulls_last=True),
        meanings={
            "kernels": "distinct candidates that count",
            "correct": "of them, correct",
            "tokens_known": "kernels that say their tokens",
            "usd_known": "kernels that say their dollars",
            "tokens": "read and written by the model for all kernels that say so, cached ones included",
            "tokens_per_correct": "of the kernels whose tokens are known, all tokens ÷ how many are correct; null"
            " without a correct one",
            "usd": "US dollars for all kernels that say so",
            "usd_per_correct": "the same for US dollars",
        },
        notes=notes,
    )


def _per_correct(name: str, known: pl.Expr) -> pl.Expr:
    correct = pl.col("passed").filter(known).sum()
    return pl.when(correct > 0).then(pl.col(name).sum() / correct)


def _fast_means(name: str) -> str:
    p = name.removeprefix("fast_")
    return (
        f"share of counted cells that are correct and more than {p} times as fast as the baseline (KernelBench fast_p)"
    )


_MEANINGS: Final = {
    "problems": "distinct problems",
    "cells": "cells that were attempted, by their latest attempt",
    "counted": "of them, passed or failed by the candidate's own fault: the denominator of every rate",
    "infra": "not counted: the machine failed",
    "invalid_problem": "not counted: the problem fails its own controls",
    "unsupported": "not counted: cannot run there, as known beforehand",
    "only_compiled": "not counted: built for a GPU that is not there",
    "compile_rate": "share of counted cells whose candidate could be built",
    "correct_rate": "share of counted cells that passed",
    "timed": "workloads of passed cells that have a speed-up: the n of speedup and share_slower",
    "speedup": "geometric mean of baseline ÷ candidate over them, exp(mean(log s)) (Fleming & Wallace, CACM 29, 1986)",
    "share_slower": "share of them that are slower than the baseline",
    "speedup_matched": "geometric mean over what every slice has a correct time for",
    "matched": "how many questions that is over",
}
