"""What share of problems is solved for a given spending, by method: many samples against many rounds, for example."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.generated_kernels import ANSWERS, GENERATOR, PLACE, SPENT, generated_kernels
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.slices import SLICES, columns_of
from kernel_matrix.analysis.tables import Tables

_ROUND: Final = SLICES["round"]
_STEPS: Final = (1.0, 2.0, 5.0)
"""Budgets of each power of ten."""


def budgets(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Compute the share of tasks that is solved for each budget, by method or by the slices that are named.

    Kernels are bought in the order of their rounds, and of their samples within a round. A slice by ``round`` has all
    rounds up to that one, since none can be had without those before.

    Raises:
        NothingSelectedError: No cell counts.
        UsageError: There is no such slice.
    """
    names = request.by or ("method",)
    columns = columns_of(names)
    kernels = generated_kernels(tables, [column for column in columns if column != _ROUND])
    if _ROUND in columns:
        kernels = _up_to_each_round(kernels)
    task = list(dict.fromkeys((*columns, *PLACE, *GENERATOR)))
    by = dict(zip(columns, names, strict=True))
    parts = [_by_budget(_tasks(kernels, task, unit), columns, unit) for unit in SPENT]
    table = pl.concat(parts).rename(by).sort("unit", "budget", *names, nulls_last=True)
    return [
        Answer(
            name="budgets",
            title="Tasks that are solved for the same spending",
            table=table,
            meanings=_MEANINGS,
            notes=list(_notes(kernels, task)),
        )
    ]


def _up_to_each_round(kernels: pl.DataFrame) -> pl.DataFrame:
    """Repeat kernels for every later round of their generator; a task that ends early keeps what it has."""
    rounds = kernels.select(*GENERATOR, pl.col("round").alias(_ROUND)).unique()
    repeated = kernels.join(rounds, on=GENERATOR, nulls_equal=True, maintain_order="left")
    return repeated.filter(pl.col("round") <= pl.col(_ROUND))


def _tasks(kernels: pl.DataFrame, task: Sequence[str], unit: str) -> pl.DataFrame:
    """Make one row per task with known spending: ``total``, and how much was spent when it was first solved."""
    spent = kernels.with_columns(spent=pl.col(unit).cum_sum().over(task))
    first = {
        "correct": pl.col("passed"),
        "fast_1": (pl.col("ratio") > 1).fill_null(value=False),
    }
    return (
        spent.group_by(task)
        .agg(
            pl.col(unit).null_count().alias("unknown"),
            pl.col("spent").max().alias("total"),
            *(pl.col("spent").filter(holds).min().alias(name) for name, holds in first.items()),
        )
        .filter((pl.col("unknown") == 0) & (pl.col("total") > 0))
    )


def _by_budget(tasks: pl.DataFrame, by: Sequence[str], unit: str) -> pl.DataFrame:
    budget = pl.DataFrame({"budget": _grid(tasks["total"])}, schema={"budget": pl.Float64()})
    within = {name: (pl.col(name) <= pl.col("budget")).fill_null(value=False) for name in ("correct", "fast_1")}
    ended = (pl.col("total") < pl.col("budget")) & ~within["correct"]
    return (
        tasks.join(budget, how="cross")
        .group_by([*by, "budget"])
        .agg(
            pl.lit(unit).alias("unit"),
            pl.len().cast(pl.Int64).alias("tasks"),
            *(holds.mean().alias(name) for name, holds in within.items()),
            ended.mean().alias("ended"),
        )
        .select("unit", "budget", *by, "tasks", *within, "ended")
    )


def _grid(totals: pl.Series) -> list[float]:
    """Choose round budgets between the tenth of the least and the greatest spending of a task."""
    if totals.is_empty():
        return []
    low, high = totals.to_numpy().min() / 10, totals.to_numpy().max()
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = [float(f"{step}e{power}") for power in powers for step in _STEPS]
    above = next((step for step in steps if step >= high), high)
    return [step for step in steps if low <= step <= above]


def _notes(kernels: pl.DataFrame, task: Sequence[str]) -> Iterator[str]:
    yield ANSWERS
    for unit, words in SPENT.items():
        unknown = kernels.filter(pl.col(unit).is_null()).select(task).unique().height
        if unknown:
            yield f"{unknown} tasks have kernels that do not state their {words}: they are left out of these budgets."


_MEANINGS: Final = {
    "unit": "what is spent: `usd`, or `tokens` read and written",
    "budget": "most that is spent on each task, in that unit",
    "tasks": "problem × dtype × GPU × toolchain × method × model × prompt with kernels of this slice, all of known"
    " cost",
    "correct": "share of them with a correct kernel for the budget: kernels are bought by round, then by sample",
    "fast_1": "share of them with a kernel for the budget that is correct and faster than the baseline",
    "ended": "share of them without a correct kernel whose last one was bought for less than the budget: had more been"
    " made, `correct` might be higher, by this at most",
}
