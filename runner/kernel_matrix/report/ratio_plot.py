"""Plot of a GPU's speed against another's as SVG: complete without a script, in the colours of the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kernel_matrix.report.markup import Html, element, joined
from kernel_matrix.report.number_format import times

_WIDTH: Final = 760
_LEFT: Final = 200
"""Space for labels."""
_RIGHT: Final = 200
"""Space for figures."""
_ROW: Final = 24
_TOP: Final = 8
_BOTTOM: Final = 30
"""Space for ticks."""
_LONGEST: Final = 28
"""Characters of a label."""
_BEYOND: Final = 1.5
"""Factor by which the axis may reach beyond all ratios and predictions to show intervals."""
_STEPS: Final = (0.05, 0.1, 0.2, 0.25, 0.5)
"""Steps between ticks on a short axis."""
_PER_DECADE: Final = ((1, 2, 5), (1,))
"""Ticks per decade on a long one."""
_MOST_TICKS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PlottedRatio:
    """One row of the plot."""

    label: str
    ratio: float
    low: float | None
    high: float | None
    memory: float | None = None
    """Prediction for memory-bound work."""
    compute: float | None = None
    """Prediction for compute-bound work."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval, if there is one."""
        return (self.low, self.high) if self.low is not None and self.high is not None else None


@dataclass(frozen=True, slots=True)
class _Axis:
    """Logarithmic axis."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Return the place of ``value``, of one beyond the axis its end."""
        share = math.log(min(max(value, self.low), self.high) / self.low) / math.log(self.high / self.low)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def ticks(self) -> list[float]:
        """Choose the finest round values that are not too many."""
        decades = [10.0**power for power in range(-6, 7)]
        choices = [
            *([step * count for count in range(1, min(math.ceil(self.high / step), 500) + 1)] for step in _STEPS),
            *([unit * decade for decade in decades for unit in units] for units in _PER_DECADE),
        ]
        fitting = [[one for one in values if self.low <= one <= self.high] for values in choices]
        return next((values for values in fitting if 2 <= len(values) <= _MOST_TICKS), [1.0])


def ratio_plot(title: str, rows: Sequence[PlottedRatio]) -> Html:
    """Draw a dot with its interval per row, on a logarithmic axis, and the predictions of the data sheets."""
    axis = _axis(rows)
    height = _TOP + _ROW * len(rows) + _BOTTOM
    said = "; ".join(f"{row.label} {_figures(row)}" for row in rows)
    drawn = element(
        "svg",
        *_grid(axis, height),
        *(part for place, row in enumerate(rows) for part in _row(row, axis, _TOP + _ROW * place + _ROW / 2)),
        viewBox=f"0 0 {_WIDTH} {height}",
        role="img",
        aria_label=f"{title}: {said}",
        class_="ratios",
    )
    return element("figure", element("figcaption", title), drawn, _legend(rows))


def _axis(rows: Sequence[PlottedRatio]) -> _Axis:
    known = [one for row in rows for one in (row.ratio, row.memory, row.compute) if one is not None and one > 0]
    bounds = [one for row in rows for one in row.interval or ()]
    low, high = min(1.0, *known), max(1.0, *known)
    low, high = max(min(low, *bounds, low), low / _BEYOND), min(max(high, *bounds, high), high * _BEYOND)
    return _Axis(low / 1.04, high * 1.04)


def _grid(axis: _Axis, height: float) -> Iterator[Html]:
    for tick in axis.ticks():
        x, bottom = f"{axis.at(tick):.1f}", height - _BOTTOM
        kind = "one" if math.isclose(tick, 1) else "grid"
        yield element("line", x1=x, x2=x, y1=str(_TOP), y2=str(bottom), class_=kind)
        yield element("text", f"{tick:g}×", x=x, y=str(bottom + 18), text_anchor="middle", class_="tick")


def _row(row: PlottedRatio, axis: _Axis, y: float) -> Iterator[Html]:
    middle = f"{y + 4:.1f}"
    label = row.label if len(row.label) <= _LONGEST else f"{row.label[: _LONGEST - 1]}…"
    yield element("text", label, x=str(_LEFT - 12), y=middle, text_anchor="end")
    for name, value in (("memory", row.memory), ("compute", row.compute)):
        if value is not None and value > 0:
            x, half = axis.at(value), _ROW / 2 - 2
            path = f"M{x:.1f} {y - half:.1f}V{y + half:.1f}"
            yield element("path", d=path, class_=name)
    if row.interval is not None:
        low, high = (f"{axis.at(bound):.1f}" for bound in row.interval)
        yield element("line", x1=low, x2=high, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="interval")
    yield element("circle", cx=f"{axis.at(row.ratio):.1f}", cy=f"{y:.1f}", r="4.5")
    yield element("text", _figures(row), x=str(_WIDTH - _RIGHT + 14), y=middle)


def _figures(row: PlottedRatio) -> str:
    if row.interval is None:
        return times(row.ratio)
    low, high = (times(bound).removesuffix("×") for bound in row.interval)
    return f"{times(row.ratio)} ({low} to {high})"


def _legend(rows: Sequence[PlottedRatio]) -> Html:
    parts = [element("span", element("b", "●"), " geometric mean over problems, with its 95 % interval")]
    if any(row.memory is not None for row in rows):
        parts.append(element("span", element("b", "┆"), " dashed: data sheets, memory-bound work"))
    if any(row.compute is not None for row in rows):
        parts.append(element("span", element("b", "│"), " solid: data sheets, compute-bound work"))
    return element("p", joined(*parts), class_="legend")
