"""How often comparisons of 500 cells are right: false alarms, coverage of intervals, and changes that are found.

``python benchmarks/comparisons.py [--pages N] [--seed N] [--json]`` draws session medians for pages on which nothing
changed, in shapes of noise that real machines show, and tests them as ``kernel-matrix compare`` does. Then one cell of
each page becomes slower by a share, to see how often that is found.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.comparison import ComparisonRules
from kernel_matrix.analysis.differences import (
    benjamini_hochberg,
    default_deviation,
    noise_classes,
    unpaired_differences,
)
from kernel_matrix.analysis.relabelled_sessions import LEVELS

CELLS: Final = 500
SHORT: Final = 200
"""Of these, cells with short calls in :func:`by_size`; they come first."""
RULES: Final = ComparisonRules()
Array = Any
Noise = Callable[[np.random.Generator, tuple[int, ...]], Array]
"""Draws logarithms of session medians; shape (cells, runs, sessions)."""


def normal(dice: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return dice.normal(0, 0.005, shape)


def one_percent(dice: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return dice.normal(0, 0.01, shape)


def heavy_tails(dice: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return dice.standard_t(3, shape) * 0.005 / np.sqrt(3)


def stray_sessions(dice: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return normal(dice, shape) + (dice.random(shape) < 0.05) * dice.exponential(0.1, shape)


def two_states(dice: np.random.Generator, shape: tuple[int, ...]) -> Array:
    cells = dice.random((shape[0], 1, 1)) < 0.2
    return dice.normal(0, 0.003, shape) + 0.03 * (cells & (dice.random(shape) < 0.5))


def by_size(dice: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return dice.normal(0, 1, shape) * np.where(np.arange(shape[0]) < SHORT, 0.02, 0.003)[:, None, None]


def uneven(dice: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return dice.normal(0, 1, shape) * dice.choice([0.003, 0.01, 0.03], (shape[0], 1, 1))


@dataclass(frozen=True)
class Case:
    """One kind of page."""

    name: str
    noise: Noise
    base: int = 5
    new: int = 5
    runs: int = 1
    """Runs of base, each with ``base`` sessions."""
    run_deviation: float = 0.0
    slower: float = 0.02
    """Share by which one cell is made slower to see whether that is found."""


CASES: Final = (
    *(
        Case(f"{name}, {base} and {new} sessions", noise, base, new)
        for name, noise in (
            ("normal, 0.5 %", normal),
            ("Student's t, 3 degrees", heavy_tails),
            ("5 % stray sessions", stray_sessions),
            ("20 % of cells in two states, 3 %", two_states),
            ("0.3, 1 and 3 %, mixed", uneven),
        )
        for base, new in ((5, 5), (3, 3), (2, 2), (3, 8))
    ),
    *(
        Case(f"runs differ by {100 * sd:g} %, base of 3", normal, runs=3, run_deviation=sd)
        for sd in (0.003, 0.005, 0.01)
    ),
    Case("runs differ by 0.5 %, base of 8, t", heavy_tails, runs=8, run_deviation=0.005),
    Case("runs differ by 0.5 %, base of 1", normal, run_deviation=0.005),
    Case("8 nights of one session", normal, base=1, new=1, runs=8),
    *(
        Case(f"200 short calls 2 %, 300 long 0.3 %, {sessions} and {sessions} sessions", by_size, sessions, sessions)
        for sessions in (5, 3, 2)
    ),
    *(
        Case(f"{name}, one session a side, +30 %", noise, 1, 1, slower=0.3)
        for name, noise in (("normal, 1 %", one_percent), ("t", heavy_tails), ("two states", two_states))
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=60)
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for case in CASES:
        rows.append(measured(case, options.pages, np.random.default_rng(options.seed)))
        if not options.json:
            print(told(rows[-1]), flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))


def measured(case: Case, pages: int, dice: np.random.Generator) -> dict[str, Any]:
    """Return the figures of one case."""
    alarms, covered, found, smallest = [], [], [], []
    short = SHORT if case.noise is by_size else 0
    for _ in range(pages):
        base, new = page(case, dice)
        unchanged = tested(base, new, short)
        alarms.append(int(flagged(unchanged).sum()))
        covered.append(float(np.mean(np.abs(unchanged["effect"]) <= unchanged["reach"])))
        smallest.append(float(np.median(unchanged["smallest"])))
        new[-1] += np.log1p(case.slower)
        found.append(bool(flagged(tested(base, new, short))[-1]))
    return {
        "case": case.name,
        "pages": pages,
        "pages_with_alarms": sum(map(bool, alarms)),
        "alarms": sum(alarms),
        "coverage": float(np.mean(covered)),
        "slower": case.slower,
        "found": float(np.mean(found)),
        "smallest": float(np.expm1(min(np.median(smallest), 10.0))),
    }


def page(case: Case, dice: np.random.Generator) -> tuple[Array, Array]:
    """Draw both sides of a page on which nothing changed."""
    runs, sessions = case.runs + 1, max(case.base, case.new)
    logs = case.noise(dice, (CELLS, runs, sessions)) + dice.normal(0, case.run_deviation, (CELLS, runs, 1))
    return logs[:, : case.runs, : case.base], logs[:, case.runs :, : case.new].copy()


def tested(base: Array, new: Array, short: int) -> dict[str, Array]:
    """Test every cell, in classes as ``compare`` does; the first ``short`` cells have short calls."""
    sides = []
    for side, logs in enumerate((base, new)):
        row, run, _session = (axis.ravel() for axis in np.indices(logs.shape))
        sides.append(pl.DataFrame({"row": row, "side": np.full(row.size, side), "run": run, "log": logs.ravel()}))
    row, sessions = np.arange(CELLS), pl.concat(sides)
    default = pl.DataFrame({"row": row, "deviation": default_deviation(np.where(row < short, 2e3, 1e6))})
    found = {name: np.empty(CELLS) for name in ("effect", "p", "strict", "reach", "smallest")}
    for cells in noise_classes(default):
        of_class = sessions.join(cells, on="row", how="semi")
        one = unpaired_differences(of_class, cells, RULES.q * cells.height / CELLS, mostly_unchanged=True)
        strict, reach = (one.reach[level] for level in LEVELS)
        numbers = (one.effect, one.p, strict, reach, one.smallest(RULES.margin))
        for name, values in zip(found, numbers, strict=True):
            found[name][one.row.astype(int)] = values
    return found


def flagged(found: dict[str, Array]) -> Array:
    """Flag what ``compare`` calls a regression or an improvement."""
    beyond = np.abs(found["effect"]) - found["strict"] > np.log1p(RULES.margin)
    return (benjamini_hochberg(found["p"]) < RULES.q) & beyond


def told(row: dict[str, Any]) -> str:
    return (
        f"{row['case']:45} pages with an alarm {row['pages_with_alarms']:2} of {row['pages']}"
        f"  coverage {100 * row['coverage']:.1f} %  +{100 * row['slower']:g} % found {100 * row['found']:3.0f} %"
        f"  smallest {100 * row['smallest']:.2f} %"
    )


if __name__ == "__main__":
    main()
