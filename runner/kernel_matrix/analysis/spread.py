"""Answers about variance components: pooled over the cells of a slice, and of each cell alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.components import (
    DEGREES,
    EXPECTED,
    SQUARES,
    Array,
    NestedLevels,
    interval_degrees,
    numbers,
    stacked,
)
from kernel_matrix.analysis.levels import LEVELS, LevelEstimates, estimates, percent
from kernel_matrix.analysis.questions import Answer
from kernel_matrix.analysis.session_tails import have_heavy_tails, session_groups, shows_tails
from kernel_matrix.analysis.timed_sessions import OF, RECURRING, SLICE, TimedSessions
from kernel_matrix.analysis.variance_prior import FEWEST_CELLS
from kernel_matrix.analysis.within import WITHIN

_EVEN: Final = 0.7
"""Least share of the degrees of freedom that is left by cells that do not differ in noise."""


def heavy_tailed(measured: TimedSessions, sums: pl.DataFrame) -> list[str]:
    """Return the measures whose sessions have heavy tails, or may have: bounds of deviations rest on normal noise.

    Few sessions a night do not show their tails. Where the cells' variances differ by more than normal noise makes
    them differ, the tails may then be as heavy as the cells different.
    """
    whole = sums.group_by("of").agg(*(pl.col(name).sum() for name in (SQUARES[3], DEGREES[3])), **_between_cells())
    uneven = whole.filter(pl.Series(_uneven_degrees(whole) < _EVEN * numbers(whole, DEGREES[3])))["of"].to_list()
    groups = session_groups(measured)
    return [of for of in OF if have_heavy_tails(groups, of) or (of in uneven and not shows_tails(groups, of))]


def of_slices(measured: TimedSessions, sums: pl.DataFrame, by: Sequence[str], heavy: Sequence[str] = ()) -> Answer:
    """Pool components over the cells of each slice by adding their sums of squares.

    ``heavy`` are the measures with heavy tails.
    """
    labels = [*by] or [SLICE]
    added = [*SQUARES, *DEGREES, *EXPECTED, *WITHIN, "values"]
    pooled = (
        measured.with_labels(sums.select("cell", "of", *added), by)
        .group_by(*labels, "of")
        .agg(pl.len().alias("cells"), *(pl.col(name).sum() for name in added), **_between_cells())
        .with_columns(_heavy=pl.col("of").is_in(heavy))
        .join(_members(measured, by), on=labels, nulls_equal=True)
        .sort(*labels, "of", nulls_last=True)
    )
    found = _without_bounds(estimates(pooled, measured.chain, _shared_degrees(pooled)), pooled["_heavy"])
    return Answer(
        name="components",
        title="Components of variance, pooled over cells",
        table=_by_level(pooled, found, labels),
        meanings={
            "of": "Measure: the candidate's time, the baseline's, or the speed-up, from session medians.",
            "varies": "Level: nights, hosts, units (boards) of a model, sessions, blocks in one, calls in one.",
            "sd_percent": "Standard deviation of the log that this level alone adds, percent, by moments.",
            "low_percent": "95 % bounds: modified large-sample (Ting et al. 1990); degrees count each unit, host and "
            "night once, even if many cells ran there.",
            "share": "Share of the sum of all levels' variances, for one call.",
            "degrees": "Degrees of freedom of the interval.",
            "clipped": "The estimate was negative and is given as 0.",
        },
        notes=[*measured.notes, *_order_notes(measured.chain), *_sample_notes(pooled)],
    )


def _between_cells() -> dict[str, pl.Expr]:
    """Sum what shows how much the cells' variances differ: :func:`_uneven_degrees`."""
    squares, degrees = pl.col(SQUARES[3]), pl.col(DEGREES[3])
    return {
        "_varied": (degrees > 0).sum(),
        "_squares_2": (squares**2).sum(),
        "_both": (squares * degrees).sum(),
        "_degrees_2": (degrees**2).sum(),
    }


def _uneven_degrees(pooled: pl.DataFrame) -> Array:
    """Compute the degrees of freedom of the variance between sessions from the spread of the cells' own.

    Cells that differ in noise, and heavy tails, make it less certain than the number of sessions says. The cells count
    as a sample of those of their kind; with fewer than :data:`FEWEST_CELLS` the spread is not used.
    """
    squares, degrees = numbers(pooled, SQUARES[3]), numbers(pooled, DEGREES[3])
    cells = numbers(pooled, "_varied")
    mean = squares / np.maximum(degrees, 1.0)
    off = numbers(pooled, "_squares_2") - 2 * mean * numbers(pooled, "_both") + mean**2 * numbers(pooled, "_degrees_2")
    error = np.maximum(off, 0.0) / np.maximum(degrees, 1.0) ** 2 * cells / np.maximum(cells - 1, 1.0)
    own = 2 * mean**2 / np.where(error > 0, error, np.inf)
    return np.where((cells >= FEWEST_CELLS) & (own > 0), np.minimum(own, degrees), degrees)


def _without_bounds(found: LevelEstimates, heavy: pl.Series) -> LevelEstimates:
    """Take away the bounds of the session level in rows with heavy tails."""
    for bound in (found.low, found.high):
        bound["session"] = np.where(heavy.to_numpy(), np.nan, bound["session"])
    return found


def _by_level(pooled: pl.DataFrame, found: LevelEstimates, labels: Sequence[str]) -> pl.DataFrame:
    """Make one row per slice, measure and level."""
    whole = sum(np.nan_to_num(np.maximum(found.raw[level], 0.0)) for level in LEVELS)
    whole = np.where(whole > 0, whole, np.nan)
    parts = []
    for place, level in enumerate(LEVELS):
        raw, low, high = found.with_bounds(level)
        degrees = np.where(np.isfinite(raw), found.degrees[level], np.nan)
        parts.append(
            pooled.select(*labels, "of", "cells").with_columns(
                pl.lit(level).alias("varies"),
                pl.lit(place).alias("_place"),
                percent(raw).alias("sd_percent"),
                percent(low).alias("low_percent"),
                percent(high).alias("high_percent"),
                pl.Series("share", np.maximum(raw, 0.0) / whole, nan_to_null=True),
                pl.Series("degrees", degrees, nan_to_null=True),
                pl.Series("clipped", raw < 0),
                pl.Series("note", _remarks(level, raw, pooled)),
            )
        )
    return pl.concat(parts).sort(*labels, "of", "_place", nulls_last=True).drop("_place")


def _shared_degrees(pooled: pl.DataFrame) -> Array:
    """Compute degrees of freedom, counting a host, unit, night or session that cells share once."""
    degrees = stacked(pooled, DEGREES)
    shared = stacked(pooled, [f"shared_{i}" for i in range(3)])
    degrees[:, :3] = np.minimum(degrees[:, :3], shared)
    degrees[:, 3] = np.minimum(degrees[:, 3] * numbers(pooled, "distinct_sessions"), _uneven_degrees(pooled))
    return degrees


def _members(measured: TimedSessions, by: Sequence[str]) -> pl.DataFrame:
    """Count the groups of each slice, counting a host, unit or night that cells share once."""
    chain, labels = measured.chain, [*by] or [SLICE]
    values = measured.values.select("cell", "record", "session", "host", "unit", "night", _gpu="gpu")
    joined = measured.with_labels(values, by)
    one, two = ["_gpu", *chain.top], ["_gpu", *chain.top, *chain.middle]
    groups = {
        "_gpus": ["_gpu"],
        "_top": one,
        "_middle": two,
        "_low": [*two, *chain.low],
        "_middle_effects": ["_gpu", *chain.middle_effect],
        "_low_effects": ["_gpu", *chain.low_effect],
        "_sessions": ["record", "session"],
    }
    result = joined.group_by(*labels).agg(pl.len().alias("_rows"))
    for name, columns in groups.items():
        distinct = joined.select(*labels, *columns).unique()
        counted = distinct.group_by(*labels).agg(pl.len().cast(pl.Float64).alias(name))
        result = result.join(counted, on=labels, nulls_equal=True)
    number = {name: pl.col(name) for name in groups}
    return result.select(
        *labels,
        shared_0=number["_top"] - number["_gpus"],
        shared_1=pl.min_horizontal(number["_middle"] - number["_top"], number["_middle_effects"] - number["_gpus"]),
        shared_2=pl.min_horizontal(number["_low"] - number["_middle"], number["_low_effects"] - number["_gpus"]),
        distinct_sessions=number["_sessions"] / pl.col("_rows"),
    )


def _remarks(level: str, raw: Array, pooled: pl.DataFrame) -> list[str]:
    sampled = numbers(pooled, "sessions") > 0
    unsure = pooled["_heavy"].to_numpy() & (level == "session")
    return [
        ("no bounds: tails are heavy, or too few sessions show them" if one else "")
        if np.isfinite(value)
        else f"no {level}s: no samples are kept"
        if level in ("block", "sample") and not kept
        else f"each cell has one {level} at most within the level above; what {level}s add is in that level"
        for value, kept, one in zip(raw, sampled, unsure, strict=True)
    ]


def _order_notes(chain: NestedLevels) -> list[str]:
    if chain is RECURRING:
        nested = "Units recur on several nights, so nights are nested within units"
        return [f"{nested}; a night's effect that all units share is estimated separately from theirs."]
    return ["No unit measured a cell on several nights, so units are nested within nights and hosts."]


def _sample_notes(pooled: pl.DataFrame) -> list[str]:
    without = pooled.filter(pl.col("of") == "candidate")["sessions"].sum() == 0
    if without:
        return ["The tables hold no samples of these sessions: the session level includes blocks and samples."]
    explained = "The part of a session median's variance that comes from samples and blocks"
    formula = "σ²_block / blocks + π/2 · σ²_sample / samples"
    return [f"{explained} ({formula}) is subtracted from the session level, except for the speed-up."]


def of_cells(measured: TimedSessions, sums: pl.DataFrame, heavy: Sequence[str] = ()) -> Answer:
    """Compute the components of every cell, one row per cell and measure, where a level can be estimated.

    ``heavy`` are the measures with heavy tails.
    """
    several = pl.any_horizontal(pl.col(*DEGREES, "block_degrees", "sample_degrees").fill_null(0) > 0)
    kept = sums.filter(several)
    found = _without_bounds(estimates(kept, measured.chain, interval_degrees(kept)), kept["of"].is_in(heavy))
    columns = [
        percent(each).alias(f"{level}{bound}_percent")
        for level in LEVELS
        for bound, each in zip(("", "_low", "_high"), found.with_bounds(level), strict=True)
    ]
    negative = pl.Series("clipped", np.sum([found.raw[level] < 0 for level in LEVELS], axis=0), dtype=pl.Int32)
    counts = kept.select("of", pl.col("values").alias("sessions"), "nights", "hosts", "units", *columns, negative)
    clipped, hidden = int((negative > 0).sum()), sums.height - kept.height
    notes = [f"{clipped} of {kept.height} rows have a level whose estimate was negative and is given as 0."]
    if heavy:
        which = ", ".join(heavy)
        notes.append(
            f"No bounds of the session level in single cells ({which}): tails are heavier than normal, or with few "
            "sessions a night cannot be told from cells that differ in noise."
        )
    if hidden:
        notes.append(f"{hidden} of {sums.height} rows are not shown: one session without samples shows no level.")
    return Answer(
        name="components_by_cell",
        title="Components of variance of each cell",
        table=measured.cells.drop("cell")[kept["cell"]].hstack(counts),
        meanings={
            "<level>_percent": "Standard deviation that the level adds, percent; null where the cell has one member.",
            "<level>_low_percent": "95 % bounds; wide with two or three members.",
            "clipped": "Number of levels with a negative estimate, given as 0.",
        },
        notes=notes,
    )
