"""How often the intervals of ``variance`` hold what they are about.

``python benchmarks/noise.py [--sets N] [--seed N] [--json]`` draws session medians of 300 cells whose deviations are
known, in shapes of noise that real machines show, and asks for components, the noise of cells, and differences between
units as ``kernel-matrix analyze variance`` does. An interval of a component is right if it holds the deviation with
which it was drawn (that of the kind of cells, or of one cell), one of a cell if it holds the cell's own time, and one
of a unit if it holds the unit's own effect.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.cell_noise import noise
from kernel_matrix.analysis.levels import sums_of_cells
from kernel_matrix.analysis.spread import heavy_tailed, of_cells, of_slices
from kernel_matrix.analysis.timed_sessions import RECURRING, TimedSessions
from kernel_matrix.analysis.units import between_units
from kernel_matrix.analysis.within import WITHIN

CELLS: Final = 300
SESSION: Final = 0.01
"""Deviation between sessions."""
Array = Any


def normal(dice: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return dice.normal(0, 1, shape)


def heavy_tails(dice: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return dice.standard_t(3, shape) / np.sqrt(3)


def stray(dice: np.random.Generator, shape: tuple[int, ...]) -> Array:
    drawn = dice.normal(0, 1, shape) + (dice.random(shape) < 0.05) * 10 * dice.exponential(1, shape)
    return (drawn - 0.5) / np.sqrt(1 + 0.05 * 200 - 0.25)


SHAPES: Final[dict[str, Callable[..., Array]]] = {"normal": normal, "t3": heavy_tails, "5 % stray": stray}


@dataclass(frozen=True)
class Design:
    """Sessions per night, nights and units, and what units and nights add."""

    units: int = 1
    nights: int = 1
    sessions: int = 3
    unit: float = 0.0
    night: float = 0.0
    uneven: bool = False
    """Cells' deviations differ, from a third of the usual to three times."""


DESIGNS: Final = {
    "3 sessions": Design(),
    "10 sessions": Design(sessions=10),
    "3 sessions, uneven cells": Design(uneven=True),
    "8 nights, 2 sessions": Design(nights=8, sessions=2, night=0.005),
    "4 units, 6 nights": Design(units=4, nights=6, sessions=1, unit=0.01, night=0.005),
    "4 units, 1 night": Design(units=4, sessions=2, unit=0.01),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for design in DESIGNS:
        for shape in SHAPES:
            row = measured(design, shape, options.sets, np.random.default_rng(options.seed))
            print(json.dumps(row) if options.json else told(row), flush=True)


def measured(design: str, shape: str, sets: int, dice: np.random.Generator) -> dict[str, Any]:
    """Return the share of intervals that hold, of those that are shown, per kind; None where none is."""
    held: dict[str, list[float | None]] = {}
    for _ in range(sets):
        for kind, shares in one_set(DESIGNS[design], SHAPES[shape], dice).items():
            held.setdefault(kind, []).extend(shares)
    found = {}
    for kind, shares in held.items():
        shown = [share for share in shares if share is not None]
        found[kind] = float(np.mean(shown)) if shown else None
        found[f"{kind} shown"] = len(shown) / len(shares)
    return {"design": design, "shape": shape, "sets": sets, **found}


def one_set(design: Design, shape: Callable[..., Array], dice: np.random.Generator) -> dict[str, list[float | None]]:
    """Draw one set, and return per kind of interval the shares that hold."""
    size = (CELLS, design.units, design.nights, design.sessions)
    own = SESSION * (np.exp(dice.uniform(-np.log(3), np.log(3), CELLS)) if design.uneven else np.ones(CELLS))
    unit = dice.normal(0, design.unit, (1, design.units, 1, 1))
    logs = shape(dice, size) * own[:, None, None, None] + unit + dice.normal(0, design.night, (1, 1, design.nights, 1))
    measured_ = sessions_of(logs)
    none = pl.DataFrame(schema={"cell": pl.UInt32(), "of": pl.String(), **dict.fromkeys(WITHIN, pl.Float64())})
    sums = sums_of_cells(measured_, none)
    time = pl.col("of") == "candidate"
    heavy = heavy_tailed(measured_, sums)
    pooled = of_slices(measured_, sums, [], heavy).table.filter(time)
    usual = float(np.sqrt((9 - 1 / 9) / (4 * np.log(3)))) if design.uneven else 1.0
    truth = {"session": SESSION * usual, "night": design.night, "unit": design.unit}
    if design.sessions == 1:  # what sessions add is in the nights
        truth["night"] = float(np.hypot(design.night, SESSION))
    found = {f"sd of {level}s": [holds(pooled, level, wanted)] for level, wanted in truth.items() if wanted}
    each = of_cells(measured_, sums, heavy).table.filter(time)
    bounds = each.select("session_low_percent", "session_high_percent").to_numpy() if each.height else None
    own = own[each["problem"].cast(pl.Int64).to_numpy()]
    found["sd of a cell"] = [None if bounds is None else held_in(bounds, 100 * own)]
    if design.units == 1 and design.nights == 1:
        none_spent = pl.DataFrame(schema={"record": pl.UInt32(), "total_s": pl.Float64()})
        table = noise(none_spent.lazy(), measured_, sums).table
        off = np.abs(logs.mean(axis=(1, 2, 3)))[table["problem"].cast(pl.Int64).to_numpy()]
        reach = np.log1p(table["half_width_percent"].to_numpy() / 100)
        found["time of a cell"] = [float(np.mean(off <= reach))]
    if design.units > 1:
        boards = between_units(measured_)[1].table.filter(pl.col("of") == "time").sort("unit")
        wanted = 100 * np.expm1(unit[0, :, 0, 0] - unit.mean())
        found["effect of a unit"] = [held_in(boards.select("low_percent", "high_percent").to_numpy(), wanted)]
    return found


def holds(pooled: pl.DataFrame, level: str, wanted: float) -> float | None:
    low, high = pooled.filter(pl.col("varies") == level).select("low_percent", "high_percent").row(0)
    return None if low is None else float(low <= 100 * wanted <= high)


def held_in(bounds: Array, wanted: Array) -> float | None:
    known = np.isfinite(bounds.astype(np.float64)).all(axis=1)
    return (
        float(np.mean((bounds[known, 0] <= wanted[known]) & (wanted[known] <= bounds[known, 1])))
        if known.any()
        else None
    )


def sessions_of(logs: Array) -> TimedSessions:
    """Arrange logarithms (cells, units, nights, sessions) as timed sessions."""
    cell, unit, night, session = (axis.ravel() for axis in np.indices(logs.shape))
    value = pl.Series(logs.ravel() + 11.0)
    values = pl.DataFrame(
        {
            "cell": pl.Series(cell, dtype=pl.UInt32),
            "record": pl.Series((cell * logs.shape[1] + unit) * logs.shape[2] + night, dtype=pl.UInt32),
            "session": pl.Series(session, dtype=pl.Int32),
            "unit": "GPU-" + pl.Series(unit).cast(pl.String),
            "night": pl.Series(night, dtype=pl.Int32).cast(pl.Date),
            "log_candidate": value,
            "log_baseline": value,
            "log_speedup": -value,
        }
    ).with_columns(host=pl.lit("host"), workload=pl.lit("default"), gpu=pl.lit("h200"), gpu_name=pl.lit("NVIDIA H200"))
    cells = pl.DataFrame({"cell": pl.Series(np.arange(len(logs)), dtype=pl.UInt32), "problem": np.arange(len(logs))})
    return TimedSessions(values=values, cells=cells.with_columns(pl.col("problem").cast(pl.String)), chain=RECURRING)


def told(row: dict[str, Any]) -> str:
    kinds = [kind for kind in row if f"{kind} shown" in row]
    shares = [f"{kind} {'–' if row[kind] is None else f'{100 * row[kind]:.1f} %'}" for kind in kinds]
    return f"{row['design']:26} {row['shape']:10} " + ", ".join(shares)


if __name__ == "__main__":
    main()
