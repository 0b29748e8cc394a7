"""Plots of times and bandwidths over the number of ranks as SVG: complete without a script."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from kernel_matrix.report.line_plots import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MOST_LINES,
    RIGHT,
    TOP,
    WIDTH,
    LogAxis,
    amount,
    line_legend,
    line_style,
)
from kernel_matrix.report.markup import Html, element, joined
from kernel_matrix.report.number_format import number

_MOST_PLACES: Final = 6
"""Problems in one place each that are plotted: those with the longest calls."""
_PLACE: Final = ("problem", "workload", "dtype", "gpu", "toolchain")
_BEYOND: Final = 3.0
"""Factor by which intervals may reach beyond all values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingLine:
    """One line of a plot."""

    label: str
    ranks: Sequence[int]
    """In rising order."""
    values: Sequence[float]
    """Positive."""
    intervals: Sequence[tuple[float, float] | None]


def scaling_plots(rows: pl.DataFrame) -> Html:
    """Plot the answer to ``scaling``: times, and bandwidths that are known, of the problems with the longest calls."""
    longest = pl.col("time_us").max().over(_PLACE)
    ordered = rows.sort(
        longest, *_PLACE, descending=[True, *(False for _ in _PLACE)], nulls_last=True, maintain_order=True
    )
    places = ordered.partition_by(_PLACE, maintain_order=True)
    plots = [plot for place in places[:_MOST_PLACES] for plot in _plots(place)]
    more = len(places) - _MOST_PLACES
    left_out = f" {number(more, 'more problem or place', 'more problems or places')} there." if more > 0 else ""
    note = f"Sizes are those of each rank. Efficiencies, and all figures: the page Answers, scaling.{left_out}"
    return joined(element("div", *plots, class_="pair"), element("p", note, class_="note"))


def _plots(place: pl.DataFrame) -> Iterator[Html]:
    problem, workload, dtype, gpu, toolchain = place.select(_PLACE).row(0)
    of = f"{problem}{f' [{workload}]' if workload else ''} {dtype} on {gpu} {toolchain}"
    candidates = place.partition_by("candidate", maintain_order=True)[:MOST_LINES]
    yield scaling_plot(f"{of}: time of a call, µs", [_line(rows, "time_us") for rows in candidates])
    bandwidths = [rows.drop_nulls("bus_bytes_per_s") for rows in candidates]
    known = [rows.with_columns(pl.col("bus_bytes_per_s") / 1e9) for rows in bandwidths if rows.height]
    if known:
        yield scaling_plot(f"{of}: bus bandwidth, GB/s", [_line(rows, "bus_bytes_per_s") for rows in known])


def _line(rows: pl.DataFrame, column: str) -> ScalingLine:
    candidate, problem = rows["candidate"][0], rows["problem"][0]
    bounds = rows.select("low_us", "high_us").rows() if column == "time_us" else [(None, None)] * rows.height
    return ScalingLine(
        label=str(candidate).removeprefix(f"{problem}/"),
        ranks=rows["ranks"].to_list(),
        values=rows[column].to_list(),
        intervals=[None if None in pair else pair for pair in bounds],
    )


def scaling_plot(title: str, lines: Sequence[ScalingLine]) -> Html:
    """Draw a line per candidate, with intervals, on logarithmic axes."""
    ranks = sorted({count for line in lines for count in line.ranks})
    across = LogAxis(ranks[0], max(ranks[-1], ranks[0] * 1.01), start=LEFT + 8, stop=WIDTH - RIGHT - 8)
    upwards = _axis(lines)
    said = "; ".join(map(_figures, lines))
    drawn = element(
        "svg",
        *_grid(ranks, across, upwards),
        *(part for place, line in enumerate(lines) for part in _drawn(line, across, upwards, line_style(place))),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{title}, by ranks: {said}",
        class_="shares",
    )
    return element("figure", element("figcaption", title), drawn, line_legend([line.label for line in lines]))


def _figures(line: ScalingLine) -> str:
    each = (f"{value:.4g} with {count}" for count, value in zip(line.ranks, line.values, strict=True))
    return f"{line.label} {', '.join(each)}"


def _axis(lines: Sequence[ScalingLine]) -> LogAxis:
    values = [value for line in lines for value in line.values]
    bounds = [bound for line in lines for interval in line.intervals for bound in interval or ()]
    low = max(min(*values, *bounds, values[0]), min(values) / _BEYOND)
    high = min(max(*values, *bounds, values[0]), max(values) * _BEYOND)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    steps = [float(f"{step}e{power}") for power in powers for step in (1, 2, 5)]
    bottom, top = max(step for step in steps if step <= low), min(step for step in steps if step > high)
    return LogAxis(bottom, top, start=HEIGHT - BOTTOM, stop=TOP)


def _grid(ranks: Sequence[int], across: LogAxis, upwards: LogAxis) -> Iterator[Html]:
    for tick in upwards.ticks():
        y = f"{upwards.at(tick):.1f}"
        yield element("line", x1=str(LEFT), x2=str(WIDTH - RIGHT), y1=y, y2=y)
        yield element("text", amount(tick), x=str(LEFT - 8), y=f"{upwards.at(tick) + 4:.1f}", text_anchor="end")
    for count in ranks:
        x = f"{across.at(count):.1f}"
        yield element("text", str(count), x=x, y=str(HEIGHT - BOTTOM + 18), text_anchor="middle")


def _drawn(line: ScalingLine, across: LogAxis, upwards: LogAxis, style: str) -> Iterator[Html]:
    places = [f"{across.at(count):.1f},{upwards.at(v):.1f}" for count, v in zip(line.ranks, line.values, strict=True)]
    yield element("polyline", element("title", line.label), points=" ".join(places), style=style)
    for count, interval in zip(line.ranks, line.intervals, strict=True):
        if interval is not None:
            x = f"{across.at(count):.1f}"
            ends = (f"{upwards.at(min(max(bound, upwards.low), upwards.high)):.1f}" for bound in interval)
            points = " ".join(f"{x},{end}" for end in ends)
            yield element("polyline", points=points, style=style, class_="interval")
