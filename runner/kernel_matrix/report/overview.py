"""Overview of results for a quick reader: what ran, how far to trust it, scores, portability."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from kernel_matrix.analysis.outcomes import ended_as_declared, ordinary
from kernel_matrix.analysis.scores import rate_gpus
from kernel_matrix.analysis.sentences import listed
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.model.enums import Fault, Grade, Status
from kernel_matrix.report.number_format import DASH, number, rate, times
from kernel_matrix.results.labels import describe_label, is_worth_printing

THRESHOLDS: Final = (1.0, 1.5, 2.0)
"""The p of ``fast_p`` on the overview."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The numbers of the first page; every share comes with its denominator."""

    outcomes: int
    """Cells × hosts × workloads, the latest attempt of each."""
    cells: int
    """Cells as :mod:`kernel_matrix.analysis.scores` counts them."""
    problems: int
    candidates: int
    counted: int
    """Cells that passed or failed by their candidate's fault: the denominator of every rate."""
    passed: int
    """Of these, the cells that passed."""
    expected: int
    """Failures of candidates that are declared to end with this status (controls)."""
    unexpected_passes: int
    """Passes of candidates that are declared to fail."""
    apart: Sequence[tuple[str, int, int]]
    """Controls and references, which are in no rate: (kind, cells, cells that ended as declared)."""
    ran: Sequence[tuple[str, str]]
    """Facts about the run: (name, values)."""
    trust: Mapping[str, Sequence[tuple[str, int, int]]]
    """Quality criterion → (value, timed outcomes with it, number of better values), best first."""
    scores: pl.DataFrame
    """One row per GPU and one for all: see :func:`score_gpus`; empty without outcomes."""
    odd_times: int
    """Outcomes whose speed-up is zero or infinite; they are in no mean."""
    labels: Mapping[str, int]
    """Label → outcomes that carry it, for the labels that say something; see :func:`.is_worth_printing`."""


def make_overview(outcomes: pl.DataFrame, tables: Tables) -> Overview:
    """Make the overview of ``outcomes``, the outcomes of ``tables``."""
    rates = score_gpus(tables) if outcomes.height else pl.DataFrame()
    nothing: dict[str, Any] = {"cells": 0, "counted": 0, "correct_rate": None}
    whole: dict[str, Any] = rates.row(-1, named=True) if rates.height else nothing
    fault = outcomes["fault"].cast(pl.String)
    expect = outcomes["expect"].cast(pl.String)
    ours = ordinary(outcomes)
    as_declared = outcomes["status"].cast(pl.String) == expect
    speedup = outcomes["speedup"].drop_nulls()
    return Overview(
        outcomes=outcomes.height,
        cells=whole["cells"],
        problems=ours["problem"].n_unique(),
        candidates=ours["candidate"].n_unique(),
        counted=whole["counted"],
        passed=round((whole["correct_rate"] or 0) * whole["counted"]),
        expected=int(((fault != Fault.NONE.value) & as_declared).sum()),
        unexpected_passes=int(((expect != Status.PASSED.value) & outcomes["passed"]).sum()),
        apart=_apart(outcomes) if ours.height < outcomes.height else (),
        ran=_ran(outcomes),
        trust=_trust(ours.filter(pl.col("speedup").is_not_null())),
        scores=rates,
        odd_times=int((~(speedup.is_finite() & (speedup > 0))).sum()),
        labels=_labels(outcomes, tables),
    )


def _apart(outcomes: pl.DataFrame) -> list[tuple[str, int, int]]:
    cells = outcomes.filter(pl.col("candidate_kind") != "candidate").unique("record")
    return cells.group_by("candidate_kind").agg(pl.len(), ended_as_declared().sum()).sort("candidate_kind").rows()


def score_gpus(tables: Tables) -> pl.DataFrame:
    """Score each GPU, and all GPUs together, in a row ``all``, where there are several."""
    by_gpu, together = rate_gpus(tables, THRESHOLDS)
    scored = [by_gpu, together.with_columns(gpu=pl.lit("all"))] if by_gpu.height > 1 else [by_gpu]
    columns = ("gpu", "cells", "counted", "timed", *_OF_COUNTED, "speedup", "share_faster", "share_slower")
    return pl.concat([table.select(columns) for table in scored], how="vertical_relaxed")


_OF_COUNTED: Final = ("compile_rate", "correct_rate", *(f"fast_{p:g}" for p in THRESHOLDS))
"""Shares of the cells that count."""


def _labels(outcomes: pl.DataFrame, tables: Tables) -> dict[str, int]:
    carrying = (
        tables.cells.select("record", "workload", label="labels")
        .explode("label")
        .drop_nulls("label")
        .unique()
        .join(outcomes.lazy().select("record", "workload", "passed"), on=["record", "workload"], nulls_equal=True)
        .group_by("label")
        .agg(pl.len().alias("number"), pl.col("passed").sum())
        .sort("label")
        .collect(engine="streaming")
    )
    passed = int(outcomes["passed"].sum())
    return {
        label: number
        for label, number, carried in carrying.iter_rows()
        if is_worth_printing(label, carried=carried, passed=passed)
    }


def apart_notes(overview: Overview) -> Iterator[str]:
    """Yield a sentence about controls and one about references, which are in no rate."""
    for kind, cells, as_declared in overview.apart:
        yield f"{number(cells, kind)} in no rate; {as_declared:,} ended as declared."


def label_notes(overview: Overview) -> Iterator[tuple[str, str]]:
    """Yield each label with how many outcomes carry it, its class, its meaning, and what to do about it."""
    for label, outcomes in overview.labels.items():
        yield label, f"{number(outcomes, 'outcome')}: {describe_label(label)}"


def score_rows(overview: Overview) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Format the scores: the names of the columns, of which the first is text, and a row per GPU."""
    fast = (f"fast {p:g}×" for p in THRESHOLDS)
    head = ("GPU", "cells", "count", "compiled", "correct", *fast, "speed-up", "faster", "slower")
    rows = [
        (
            row["gpu"] or DASH,
            f"{row['cells']:,}",
            f"{row['counted']:,}",
            *(rate(row[name]) for name in _OF_COUNTED),
            times(row["speedup"]),
            rate(row["share_faster"]),
            rate(row["share_slower"]),
        )
        for row in overview.scores.iter_rows(named=True)
    ]
    return head, rows


def summarise_portability(outcomes: pl.DataFrame) -> str:
    """Say in one sentence, of what counts on every GPU, how much passes on all, on some and on none."""
    gpus = outcomes["gpu"].drop_nulls().unique().sort()
    if len(gpus) == 0:
        return "These tables name no GPU: portability is unknown."
    if len(gpus) == 1:
        return f"These tables have only one GPU ({gpus[0]}): portability is unknown."
    key = ("problem", "ranks", "workload", "dtype", "toolchain", "candidate")
    each = (
        outcomes.lazy()
        .filter("counted")
        .group_by(*key, "gpu")
        .agg(pl.col("passed").all())
        .group_by(*key)
        .agg(pl.len().alias("gpus"), pl.col("passed").sum())
        .select(
            everywhere=(pl.col("gpus") == len(gpus)).sum(),
            all=((pl.col("gpus") == len(gpus)) & (pl.col("passed") == len(gpus))).sum(),
            none=((pl.col("gpus") == len(gpus)) & (pl.col("passed") == 0)).sum(),
            partly=(pl.col("gpus") < len(gpus)).sum(),
        )
        .collect()
        .row(0, named=True)
    )
    whole = each["everywhere"]
    aside = f" {each['partly']:,} more did not count on every GPU and are left out." if each["partly"] else ""
    if not whole:
        return f"No candidate counted on all {len(gpus)} GPUs: portability is unknown.{aside}"
    some = whole - each["all"] - each["none"]
    return (
        f"Of {whole:,} candidates × workloads that counted on all {len(gpus)} GPUs, {each['all']:,}"
        f" ({each['all'] / whole:.0%}) pass on every GPU, {some:,} ({some / whole:.0%}) pass on some and fail on"
        f" others, {each['none']:,} ({each['none'] / whole:.0%}) pass on none.{aside}"
    )


def _ran(outcomes: pl.DataFrame) -> list[tuple[str, str]]:
    started = outcomes["run_started_at"].drop_nulls().dt.strftime("%Y-%m-%d %H:%M")
    first, last = (str(at or "") for at in (started.min(), started.max()))
    facts = [
        ("Night", first if first == last else f"{first} to {last} (UTC), {outcomes['run_id'].n_unique():,} runs"),
        ("Matrix", _listed(outcomes["matrix"])),
        ("GPUs", _gpus(outcomes)),
        ("Driver", _listed(outcomes["driver"])),
        ("Toolchains", _toolchains(outcomes)),
        ("Dtypes", _listed(outcomes["dtype"].cast(pl.String))),
        ("Problems", _counted(outcomes["problem"], _listed(outcomes["category"], 8))),
        ("Candidates", _counted(outcomes["candidate"], _listed(outcomes["language"].cast(pl.String)))),
        ("Hosts", _listed(outcomes["hostname"])),
        ("Sandbox", _listed(outcomes["engine"])),
    ]
    return [(name, values) for name, values in facts if values]


def _counted(column: pl.Series, kinds: str) -> str:
    return f"{column.n_unique():,}" + (f" in {kinds}" if kinds else "")


def _listed(column: pl.Series, most: int = 6) -> str:
    return listed(column.drop_nulls().unique().sort().to_list(), most)


def _gpus(outcomes: pl.DataFrame) -> str:
    rows = (
        outcomes.group_by("gpu")
        .agg(pl.col("gpu_name").drop_nulls().unique().sort(), pl.col("gpu_uuid").drop_nulls().n_unique())
        .sort("gpu")
        .head(12)
    )
    return "; ".join(
        f"{gpu} ({', '.join(models) or 'hardware unknown'}" + (f", {number(units, 'unit')})" if units else ")")
        for gpu, models, units in rows.iter_rows()
    )


def _toolchains(outcomes: pl.DataFrame) -> str:
    columns = ("toolchain", "torch", "triton", "cuda")
    rows = outcomes.filter(pl.col("torch").is_not_null()).select(columns).unique().sort(columns).head(8)
    described = [
        f"{row['toolchain']} (torch {row['torch']}"
        + "".join(f", {name} {row[name]}" for name in ("triton", "cuda") if row[name])
        + ")"
        for row in rows.iter_rows(named=True)
    ]
    return "; ".join(described) or _listed(outcomes["toolchain"])


def _trust(timed: pl.DataFrame) -> dict[str, list[tuple[str, int, int]]]:
    words = {1: "1 session", 2: "2 to 4 sessions", 3: "2 to 4 sessions", 4: "2 to 4 sessions", 5: "5 or more"}
    sessions = pl.col("sessions").clip(upper_bound=5).replace_strict(words, default=None, return_dtype=pl.String)
    kinds = {
        "Grade": (pl.col("grade").cast(pl.String), [grade.value for grade in Grade]),
        "Sessions": (sessions, ["5 or more", "2 to 4 sessions", "1 session"]),
        "Alone on the GPU": (pl.col("exclusive"), ["proven"]),
        "Clocks": (pl.col("clock_state"), ["locked", "unlocked", "throttled"]),
    }
    return {name: _counts(timed, column, order) for name, (column, order) in kinds.items()} if timed.height else {}


def _counts(timed: pl.DataFrame, column: pl.Expr, order: Sequence[str]) -> list[tuple[str, int, int]]:
    counts = timed.select(column.fill_null("unknown")).to_series().value_counts()
    found = {str(word): int(count) for word, count in counts.iter_rows()}
    rank = {word: place for place, word in enumerate(order)}
    ranked = sorted(found, key=lambda word: (rank.get(word, len(order)), word))
    return [(word.replace("_", " "), found[word], rank.get(word, len(order))) for word in ranked]
