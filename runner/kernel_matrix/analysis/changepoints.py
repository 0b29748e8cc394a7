"""Changes from night to night: steps, slow drift, and changes of the environment.

A *series* is one cell on one unit: per night, the median over sessions of the log of the speed-up, the candidate's
time and the baseline's. It is cut into *stretches* where driver, image or source changed, since such a change is no
finding about the code. Steps and slopes are searched within stretches only.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.correlated_nights import Places
from kernel_matrix.analysis.differences import benjamini_hochberg
from kernel_matrix.analysis.outcomes import CELL_KEY, sessions
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.series_changes import (
    ERROR,
    FEWEST_NIGHTS,
    ChangePoints,
    find_changes,
    step_bounds,
    trends,
)
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.analysis.timed_sessions import log_of
from kernel_matrix.errors import NothingSelectedError

TOGETHER: Final = 0.3
"""Share of series that step the same way in one night from which the environment is the likely cause."""

_OF: Final = {"speedup": "speedup", "candidate": "candidate_median_ns", "baseline": "baseline_median_ns"}
"""Measure → its column."""
_ENVIRONMENT: Final = {
    "driver": "driver",
    "image": "image_id",
    "unit": "gpu_uuid",
    "candidate's source": "candidate_sha256",
    "problem's source": "problem_sha256",
}
"""Fact of the environment → its column."""
_CUTS: Final = tuple(column for column in _ENVIRONMENT.values() if column != "gpu_uuid")
"""Columns that cut a series; a series has one unit."""
_MONTH: Final = 30
"""Days."""


def drift(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Find steps and slow drift over nights and changes of the environment; also returns the series.

    Raises:
        NothingSelectedError: No session passed and was timed on a known night.
    """
    nights = _nights(tables.cells)
    values = _values(nights)
    stretches = _stretches(values)
    found = find_changes(values["value"].to_numpy(), *_located(stretches))
    steps = _steps(values, stretches, found, request.margin)
    names = nights.select("series", *CELL_KEY, "gpu_uuid").unique("series")
    return [
        _steps_answer(steps, names, values, stretches, found),
        _slopes(names, values, stretches, found),
        _environment(nights),
        _series(nights),
    ]


def _nights(cells: pl.LazyFrame) -> pl.DataFrame:
    """Make one row per series, night and environment, in order; ``stretch`` numbers the stretches."""
    where = [*CELL_KEY, "gpu_uuid", "host_id"]
    medians = [log_of(pl.col(name)).median().alias(f"log_{of}") for of, name in _OF.items()]
    found = (
        sessions(cells)
        .group_by(*where, "night", *_CUTS)
        .agg(*medians, pl.len().cast(pl.Int32).alias("sessions"), pl.col("started_at").min())
        .filter(pl.col("log_candidate").is_not_null() & pl.col("night").is_not_null())
        .sort(*where, "night", "started_at", nulls_last=True)
        .collect()
    )
    if found.is_empty():
        raise NothingSelectedError(
            "no session passed and was timed on a known night",
            next_step="Run `kernel-matrix nightly` for some nights, merge, and ask again.",
        )
    numbered = found.select(where).unique(maintain_order=True).with_row_index("series")
    found = found.join(numbered, on=where, nulls_equal=True, maintain_order="left")
    cut = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in _CUTS)
    begins = (pl.col("series") != pl.col("series").shift()).fill_null(value=True) | cut
    return found.with_columns(begins.cum_sum().alias("stretch"))


def _values(nights: pl.DataFrame) -> pl.DataFrame:
    """Stack the series of all measures: ``of``, ``series``, ``stretch``, ``night``, ``value``."""
    parts = [
        nights.select(pl.lit(of).alias("of"), "series", "stretch", "night", pl.col(f"log_{of}").alias("value"))
        for of in _OF
    ]
    return pl.concat(parts).drop_nulls("value")


def _stretches(values: pl.DataFrame) -> pl.DataFrame:
    """Locate each stretch in ``values``: its ``start`` and its number of ``nights``."""
    return (
        values.with_row_index("row")
        .group_by("of", "series", "stretch", maintain_order=True)
        .agg(pl.col("row").min().cast(pl.Int64).alias("start"), pl.len().cast(pl.Int64).alias("nights"))
    )


def _steps(values: pl.DataFrame, stretches: pl.DataFrame, found: ChangePoints, margin: float) -> pl.DataFrame:
    """Describe each step: its nights, its size with bounds, and its p and q."""
    bounds = step_bounds(values["value"].to_numpy(), *_located(stretches), found)
    columns = {
        "of": stretches["of"].gather(found.stretches),
        "series": stretches["series"].gather(found.stretches),
        "night": values["night"].gather(found.places),
        "night_before": values["night"].gather(found.places - 1),
        "shift_percent": 100 * np.expm1(bounds.shift),
        "low_percent": 100 * np.expm1(bounds.low),
        "high_percent": 100 * np.expm1(bounds.high),
        "nights_before": bounds.nights_before,
        "nights_after": bounds.nights_after,
        "p": found.p,
        "q": found.q,
        "matters": np.abs(bounds.shift) > np.log1p(margin),
    }
    return pl.DataFrame(columns)


def _located(stretches: pl.DataFrame) -> tuple[Places, Places]:
    """Return the stretches' starts in the values, and their nights."""
    return stretches["start"].to_numpy(), stretches["nights"].to_numpy()


def _steps_answer(
    steps: pl.DataFrame, names: pl.DataFrame, values: pl.DataFrame, stretches: pl.DataFrame, found: ChangePoints
) -> Answer:
    short = stretches.height - found.tested
    tested = f"{found.tested} of {stretches.height} stretches of a measure were tested"
    notes = [f"{tested}; {short} have fewer than {FEWEST_NIGHTS} nights with one driver, image, unit and source."]
    notes += _undecided_notes(found)
    return Answer(
        name="steps",
        title="Steps from one night to the next",
        table=names.join(steps, on="series").sort("q", "series", "of", "night"),
        meanings={
            "of": "Speed-up, the candidate's time, or the baseline's.",
            "night": "First night after the step.",
            "night_before": "Last night before it.",
            "shift_percent": "Mean after against mean before, up to the next step; 95 % t bounds beside it.",
            "p": "Probability that noise alone, as correlated as the set's nights, shows such a step in the piece.",
            "q": f"p adjusted over all pieces tested (Benjamini and Hochberg); steps with q up to {ERROR:g} are shown.",
            "matters": "True if the step is larger than the margin.",
        },
        notes=[*notes, *_moved_together(steps, values)],
    )


def _undecided_notes(found: ChangePoints) -> list[str]:
    notes = []
    if found.undecided:
        notes.append(
            f"{found.undecided} stretches seem to step, but wander as correlated nights do: they are too short to tell."
        )
    if found.returning.any():
        count = int(np.count_nonzero(found.returning))
        notes.append(
            f"{count} stretches go back and forth between two levels; a level seen before is no step or drift."
        )
    if found.masked:
        notes.append(
            f"{found.masked} steps are not shown: they are no larger than those of the stretches that go back and "
            "forth, and may come back too."
        )
    return notes


def _moved_together(steps: pl.DataFrame, values: pl.DataFrame) -> list[str]:
    """Write notes on nights in which so many series step the same way that the environment is the likely cause."""
    if steps.is_empty():
        return []
    there = values.group_by("of", "night").agg(pl.col("series").n_unique().alias("there"))
    up = (pl.col("shift_percent") > 0).alias("up")
    moved = steps.group_by("of", "night", up).agg(pl.col("series").n_unique().alias("moved"))
    many = moved.join(there, on=["of", "night"]).filter(
        (pl.col("moved") > TOGETHER * pl.col("there")) & (pl.col("there") >= 5)
    )
    return [
        f"On {row['night']} {row['moved']} of {row['there']} series of the {row['of']} step "
        f"{'up' if row['up'] else 'down'} together: an event of the environment, not of the code."
        for row in many.sort("night", "of").to_dicts()
    ]


def _slopes(names: pl.DataFrame, values: pl.DataFrame, stretches: pl.DataFrame, found: ChangePoints) -> Answer:
    """Compute slow drift of each piece that has enough nights."""
    night = values["night"]
    days = night.to_physical().cast(pl.Float64).to_numpy()
    each = trends(values["value"].to_numpy(), days, *_located(stretches), found)
    table = pl.DataFrame(
        {
            "of": stretches["of"].gather(each.stretch),
            "series": stretches["series"].gather(each.stretch),
            "first_night": night.gather(each.begin),
            "last_night": night.gather(each.begin + each.nights - 1),
            "nights": each.nights,
            "month_percent": 100 * np.expm1(each.slope * _MONTH),
            "low_percent": 100 * np.expm1(each.low * _MONTH),
            "high_percent": 100 * np.expm1(each.high * _MONTH),
            "p": each.p,
            "q": benjamini_hochberg(each.p),
        }
    )
    drifting = table.filter(pl.col("q") <= ERROR)
    return Answer(
        name="slopes",
        title="Slow drift",
        table=names.join(drifting, on="series").sort("q", "series", "of", "first_night"),
        meanings={
            "month_percent": "Change in 30 days: the median slope between all pairs of nights (Theil and Sen).",
            "low_percent": "95 % bounds (Sen 1968).",
            "p": "The larger of Mann and Kendall's test of no trend, and the chance of such a line in correlated "
            "nights.",
            "q": f"p adjusted over all pieces (Benjamini and Hochberg); drift with q up to {ERROR:g} is shown.",
        },
        notes=[f"{len(each.p)} of {each.pieces} pieces have {FEWEST_NIGHTS} nights or more; {drifting.height} drift."],
    )


def _environment(nights: pl.DataFrame) -> Answer:
    """List changes of the environment by night: old and new value, number of cells, and shift of their times."""
    seen = {name: pl.col(column).drop_nulls().unique().sort().str.join(", ") for name, column in _ENVIRONMENT.items()}
    means = {f"log_{of}": pl.col(f"log_{of}").mean() for of in ("speedup", "candidate")}
    by_night = nights.group_by(*CELL_KEY, "night").agg(
        *(value.alias(name) for name, value in seen.items()), *(value.alias(of) for of, value in means.items())
    )
    ordered = by_night.sort(*CELL_KEY, "night")
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift()) for name in CELL_KEY)
    before = ordered.with_columns(
        *(pl.when(same).then(pl.col(name).shift()).alias(f"{name} before") for name in (*seen, *means)),
        pl.when(same).then(pl.col("night").shift()).alias("night before"),
    ).filter(pl.col("night before").is_not_null())
    parts = []
    for name in _ENVIRONMENT:
        changed = before.filter(pl.col(name).ne_missing(pl.col(f"{name} before")))
        parts.append(
            changed.group_by(
                "night",
                pl.lit(name).alias("what"),
                pl.col(f"{name} before").alias("before"),
                pl.col(name).alias("after"),
            ).agg(
                pl.len().alias("cells"),
                *(
                    (100 * ((pl.col(of) - pl.col(f"{of} before")).median().exp() - 1)).alias(f"{shown}_shift_percent")
                    for of, shown in (("log_speedup", "speedup"), ("log_candidate", "time"))
                ),
            )
        )
    table = pl.concat(parts).sort(
        "night", "what", "cells", "before", "after", descending=[False, False, True, False, False]
    )
    return Answer(
        name="environment",
        title="Changes of the environment",
        table=table,
        meanings={
            "night": "First night with the new value.",
            "what": "The fact that changed. Series are cut here: a shift across it is not a finding about the code.",
            "cells": "Cells for which it changed.",
            "time_shift_percent": "Median over these cells of the change of their times from the night before.",
            "speedup_shift_percent": "The same for their speed-ups.",
        },
    )


def _series(nights: pl.DataFrame) -> Answer:
    several = nights.filter(pl.len().over("series") > 1)
    ones = nights.height - several.height
    shown = [*CELL_KEY, "gpu_uuid", "night", "stretch", "sessions", "driver", "image_id"]
    back = {"speedup": pl.col("log_speedup").exp()} | {
        f"{of}_ns": pl.col(f"log_{of}").exp() for of in ("candidate", "baseline")
    }
    return Answer(
        name="nights",
        title="Every series, night by night",
        table=several.select("series", *shown, *(value.alias(name) for name, value in back.items())),
        meanings={
            "series": "Number of the series: one cell on one unit.",
            "stretch": "Number of the stretch: nights with one driver, image and source.",
            "speedup": "Median over the night's sessions; so are the times, in nanoseconds.",
        },
        notes=[f"{ones} series have one night, and are not shown."] if ones else [],
    )
