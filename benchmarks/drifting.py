"""How often ``drift`` is right on 500 series of 30 to 60 nights: false alarms, and steps and slopes that are found.

``python benchmarks/drifting.py [--pages N] [--seed N] [--json] [CASE]...`` draws pages of series on which nothing
changed, in shapes of noise that real machines show, and searches them as ``kernel-matrix analyze drift`` does. Then two
series of each page, with normal noise of 1 %, get a step of 5 % in a night and a slope of 10 % over all nights. Step
bounds are counted right if they hold the step.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from kernel_matrix.analysis.differences import benjamini_hochberg
from kernel_matrix.analysis.series_changes import ERROR, find_changes, step_bounds, trends

SERIES: Final = 500
STEP: Final = float(np.log(1.05))
SLOPE: Final = float(np.log(1.10))
Array = Any


def normal(dice: np.random.Generator, nights: int) -> Array:
    return dice.normal(0, 0.01, (SERIES, nights))


def heavy_tails(dice: np.random.Generator, nights: int) -> Array:
    return dice.standard_t(3, (SERIES, nights)) * 0.01 / np.sqrt(3)


def stray_nights(dice: np.random.Generator, nights: int) -> Array:
    stray = dice.random((SERIES, nights)) < 0.05
    return normal(dice, nights) + stray * dice.exponential(0.1, (SERIES, nights))


def correlated(share: float, correlation: float = 0.9) -> Callable[[np.random.Generator, int], Array]:
    """Return a source of noise in which a share of the series is autoregressive, with the same deviation."""

    def draw(dice: np.random.Generator, nights: int) -> Array:
        own = np.where(np.arange(SERIES) < share * SERIES, correlation, 0.0)
        found = normal(dice, nights)
        for night in range(1, nights):
            found[:, night] = own * found[:, night - 1] + np.sqrt(1 - own**2) * found[:, night]
        return found

    return draw


def two_states(stays: float, deviation: float) -> Callable[[np.random.Generator, int], Array]:
    """Return a source of noise in which 20 % of the series have two states, kept with a probability each night."""

    def draw(dice: np.random.Generator, nights: int) -> Array:
        state = dice.random((SERIES, nights)) < 0.5
        for night in range(1, nights):
            kept = dice.random(SERIES) < stays
            state[:, night] = state[:, night - 1] ^ ~kept
        some = np.arange(SERIES)[:, None] < 0.2 * SERIES
        return dice.normal(0, deviation, (SERIES, nights)) + 0.03 * (state & some)

    return draw


CASES: Final = {
    "normal": normal,
    "t3": heavy_tails,
    "stray": stray_nights,
    "ar0.9-tenth": correlated(0.1),
    "ar0.9-all": correlated(1.0),
    "ar0.5-all": correlated(1.0, 0.5),
    **{
        f"states-{stays:g}-{100 * deviation:g}%": two_states(stays, deviation)
        for stays in (0.5, 0.8, 0.9, 0.95)
        for deviation in (0.003, 0.01)
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--pages", type=int, default=100)
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for name in options.cases or CASES:
        row = measured(name, options.pages, np.random.default_rng(options.seed))
        print(json.dumps(row) if options.json else told(row), flush=True)


def measured(name: str, pages: int, dice: np.random.Generator) -> dict[str, Any]:
    """Return the figures of one case."""
    alarms, sloping, found = [], [], []
    for page in pages_of(name, pages, dice):
        steps, slopes, _bounds = looked_at(page)
        alarms.append(len(steps))
        sloping.append(len(slopes))
        nights = page.shape[1]
        place = int(dice.integers(5, nights - 4))
        page[-2:] = dice.normal(0, 0.01, (2, nights))
        page[-1, place:] += STEP
        page[-2] += SLOPE * np.linspace(0, 1, nights)
        steps, slopes, bounds = looked_at(page)
        step = [number for number, stretch in enumerate(steps) if stretch == SERIES - 1]
        held = [bool(bounds[0][number] < STEP < bounds[1][number]) for number in step[:1]]
        found.append((bool(step), SERIES - 2 in slopes, *(held or [np.nan])))
    step, slope, held = np.nanmean(np.array(found, np.float64), axis=0)
    return {
        "case": name,
        "pages": pages,
        "pages_with_alarms": sum(bool(a or b) for a, b in zip(alarms, sloping, strict=True)),
        "pages_with_steps": sum(map(bool, alarms)),
        "pages_with_slopes": sum(map(bool, sloping)),
        "step_found": float(step),
        "slope_found": float(slope),
        "step_held": float(held),
    }


def pages_of(name: str, pages: int, dice: np.random.Generator) -> Iterator[Array]:
    """Draw pages on which nothing changed."""
    for _ in range(pages):
        yield CASES[name](dice, int(dice.integers(30, 61)))


def looked_at(page: Array) -> tuple[Array, Array, tuple[Array, Array]]:
    """Return the series that step and that slope, and the bounds of the steps."""
    count, nights = page.shape
    starts, lengths = np.arange(count) * nights, np.full(count, nights)
    found = find_changes(page.ravel(), starts, lengths)
    bounds = step_bounds(page.ravel(), starts, lengths, found)
    drifting = trends(page.ravel(), np.tile(np.arange(nights, dtype=np.float64), count), starts, lengths, found)
    slopes = drifting.stretch[benjamini_hochberg(drifting.p) <= ERROR]
    return found.stretches, slopes, (bounds.low, bounds.high)


def told(row: dict[str, Any]) -> str:
    share = {name: f"{100 * row[name]:3.0f} %" for name in ("step_found", "slope_found", "step_held")}
    return (
        f"{row['case']:16} alarms on {row['pages_with_alarms']:3} of {row['pages']} pages"
        f" ({row['pages_with_steps']} step, {row['pages_with_slopes']} slope)"
        f"  found: step {share['step_found']}, slope {share['slope_found']}  bounds hold {share['step_held']}"
    )


if __name__ == "__main__":
    main()
