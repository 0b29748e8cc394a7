"""Sensitivity of times and verdicts to the dtype or the toolchain, all else equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.outcomes import CELL_KEY
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.standings import FACTS, Standing, chosen_gpus, fold, slice_columns, standings
from kernel_matrix.analysis.tables import Tables

_AXES: Final = ("dtype", "toolchain")
_QUANTITIES: Final = {"candidate": "candidate_ns", "baseline": "baseline_ns", "speedup": "speedup"}
_PASSED: Final = Standing.PASSED.value
_FAILED: Final = Standing.FAILED.value


def sensitivity(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Answer ``dtype``, ``toolchain`` (one row per pair and slice) and ``flips``, the cells whose verdict differs.

    In ``request``, ``platforms`` chooses GPUs, and ``by`` slices, except by the axis itself.

    Raises:
        NothingSelectedError: No cell is on one of the platforms.
        UsageError: A slice separates hosts of one cell.
    """
    by = slice_columns(request.by, "sensitivity")
    found = standings(tables.cells)
    table, notes = found.table, list(found.notes)
    if request.platforms:
        gpus, _ = chosen_gpus(table, request.platforms)
        table = table.filter(pl.col("gpu").is_in(gpus))
    pairs = {axis: _pairs(table, axis, by) for axis in _AXES}
    unknown = {axis: table[axis].null_count() for axis in _AXES}
    on_unknown = {axis: [f"{count} cells have no known {axis}."] if count else [] for axis, count in unknown.items()}
    answers = [_answer(axis, pairs[axis], by, [*notes, *on_unknown[axis]]) for axis in _AXES]
    flips = pl.concat([_flips(axis, pairs[axis], table) for axis in _AXES])
    return [
        *answers,
        Answer(
            name="flips",
            title="Cells whose verdict differs with the dtype or toolchain",
            table=flips.sort(flips.columns),
            meanings={
                "axis": "the differing column: dtype or toolchain",
                "passes_at": "its value with which the candidate passes",
                "fails_at": "its value with which the candidate fails, by its own fault",
                "status": "status of the failure",
            },
        ),
    ]


def _pairs(table: pl.DataFrame, axis: str, by: Sequence[str]) -> pl.DataFrame:
    """Make one row per cell and pair of values of ``axis``, ``first`` and ``second``, with a result for both.

    Each has the columns that identify its cell, and those of ``by``.
    """
    keys = [name for name in CELL_KEY if name != axis]
    names = table[axis].cast(pl.String).drop_nulls().unique().sort().to_list()
    answered = table.filter(pl.col("standing").is_in([_PASSED, _FAILED]))
    shared = answered.filter(pl.len().over(keys) > 1)
    wide = fold(shared, axis, names, keys)
    values = {name: wide.of(wide.table[column]) for name, column in _QUANTITIES.items()}
    stands = {"passed": wide.stands(Standing.PASSED), "failed": wide.stands(Standing.FAILED)}
    facts = wide.keys
    if described := [name for name in FACTS if name in by]:
        first_facts = shared.group_by(keys).agg(pl.col(name).first() for name in described)
        facts = facts.join(first_facts, on=keys, how="left", nulls_equal=True, maintain_order="left")
    parts = []
    known = stands["passed"] | stands["failed"]
    for first, second in zip(*np.triu_indices(len(names), 1), strict=True):
        both = known[:, first] & known[:, second]
        ratios = {
            f"{name}_ratio": pl.Series(matrix[both, second] / matrix[both, first]).fill_nan(None)
            for name, matrix in values.items()
        }
        parts.append(
            facts.filter(pl.Series(both)).with_columns(
                first=pl.lit(names[first]),
                second=pl.lit(names[second]),
                first_passes=pl.Series(stands["passed"][both, first]),
                second_passes=pl.Series(stands["passed"][both, second]),
                **ratios,
            )
        )
    columns = {"first": pl.String(), "second": pl.String(), "first_passes": pl.Boolean(), "second_passes": pl.Boolean()}
    numbers = {f"{name}_ratio": pl.Float64() for name in _QUANTITIES}
    empty = pl.DataFrame(schema={**facts.schema, **columns, **numbers})
    return pl.concat([empty, *(part.select(empty.columns) for part in parts)])


def _answer(axis: str, pairs: pl.DataFrame, by: Sequence[str], notes: Sequence[str]) -> Answer:
    slices = [name for name in by if name != axis]
    group = [*slices, "first", "second"]
    passes, other = pl.col("first_passes"), pl.col("second_passes")
    log = {name: pl.col(f"{name}_ratio").log() for name in _QUANTITIES}
    table = (
        pairs.group_by(group)
        .agg(
            pl.len().cast(pl.Int64).alias("cells"),
            log["candidate"].count().cast(pl.Int64).alias("timed"),
            log["candidate"].mean().exp().alias("candidate_ratio"),
            log["candidate"].std().alias("sd_log_candidate"),
            log["baseline"].count().cast(pl.Int64).alias("baselines"),
            log["baseline"].mean().exp().alias("baseline_ratio"),
            log["baseline"].std().alias("sd_log_baseline"),
            log["speedup"].mean().exp().alias("speedup_ratio"),
            log["speedup"].std().alias("sd_log_speedup"),
            (passes & ~other).sum().cast(pl.Int64).alias("passes_fails"),
            (~passes & other).sum().cast(pl.Int64).alias("fails_passes"),
            (~passes & ~other).sum().cast(pl.Int64).alias("both_fail"),
        )
        .sort(group)
    )
    untimed = pairs.filter(passes & other & pl.col("candidate_ratio").is_null()).height
    notes = list(notes)
    if pairs.is_empty():
        notes.append(f"No cell has a result with two values of {axis}, so there is nothing to compare.")
    if untimed:
        notes.append(f"{untimed} pairs pass on both sides and lack a time; they count in `cells` only.")
    if axis in by:
        notes.append(f"This table compares the {axis} and is not sliced by it.")
    return Answer(
        name=axis,
        title=f"Sensitivity to the {axis}",
        table=table,
        meanings={
            "cells": f"cells with a result for both values of {axis}, all else equal",
            "timed": "cells that pass and are timed with both",
            "candidate_ratio": "geometric mean of the candidate's time with `second` ÷ with `first`; below 1: faster",
            "sd_log_candidate": "sample standard deviation of the logarithm of that ratio, between cells",
            "baselines": "cells whose baseline is timed with both, beside a candidate that passes",
            "baseline_ratio": "the same for the baseline's time, which may change too",
            "sd_log_baseline": "sample standard deviation of its logarithm",
            "speedup_ratio": "geometric mean of the speed-up with `second` ÷ with `first`",
            "sd_log_speedup": "sample standard deviation of its logarithm",
            "passes_fails": "cells that pass with `first` and fail with `second`",
            "fails_passes": "cells that fail with `first` and pass with `second`",
            "both_fail": "cells that fail with both",
        },
        notes=notes,
    )


def _flips(axis: str, pairs: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    keys = [name for name in CELL_KEY if name != axis]
    first = pl.col("first_passes")
    flipped = pairs.filter(first != pl.col("second_passes")).with_columns(
        passes_at=pl.when(first).then("first").otherwise("second"),
        fails_at=pl.when(first).then("second").otherwise("first"),
    )
    failed = table.filter(pl.col("standing") == _FAILED)
    statuses = failed.select(*keys, pl.col(axis).cast(pl.String).alias("fails_at"), pl.col("status").cast(pl.String))
    return flipped.join(statuses, on=[*keys, "fails_at"], how="left", nulls_equal=True).select(
        pl.lit(axis).alias("axis"),
        *(pl.col(name).cast(pl.String) if name in keys else pl.lit(None, pl.String).alias(name) for name in CELL_KEY),
        "passes_at",
        "fails_at",
        "status",
    )
