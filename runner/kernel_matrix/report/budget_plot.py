"""Plot of shares over budgets as SVG: complete without a script, in the colours of the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kernel_matrix.report.markup import Html, element
from kernel_matrix.report.number_format import rate

MOST_LINES: Final = 12
"""Colours of the page."""
_WIDTH: Final = 400  # narrow, so that texts can be read where the plot is shrunk to a telephone's width
_HEIGHT: Final = 220
_LEFT: Final = 48
"""Space for the shares."""
_RIGHT: Final = 16
_TOP: Final = 10
_BOTTOM: Final = 30
"""Space for the budgets."""
_SHARES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
_MOST_TICKS: Final = 7
_DASHES: Final = ("", "7 3", "2 3", "9 3 2 3")
"""Patterns in turn, so that lines differ without colours."""
_THOUSANDS: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """One line of the plot."""

    label: str
    budgets: Sequence[float]
    """Positive, in rising order."""
    shares: Sequence[float]
    ended: Sequence[float]
    """Share for which nothing more was bought, though it is not in ``shares``."""

    @property
    def spent_at(self) -> int:
        """Index of the first budget for which nothing more was bought; the last, if there is none."""
        whole = (at for at, parts in enumerate(zip(self.shares, self.ended, strict=True)) if sum(parts) > 1 - 1e-9)
        return next(whole, len(self.budgets) - 1)


@dataclass(frozen=True, slots=True)
class _BudgetAxis:
    """Logarithmic axis of budgets."""

    low: float
    high: float

    def at(self, budget: float) -> float:
        """Return the place of ``budget``."""
        share = math.log(budget / self.low) / math.log(self.high / self.low)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def ticks(self) -> list[float]:
        """Choose the finest round budgets that are not too many."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        fine, coarse = (
            [tick for power in powers for step in steps if self.low <= (tick := float(f"{step}e{power}")) <= self.high]
            for steps in ((1, 2, 5), (1,))
        )
        return fine if len(fine) <= _MOST_TICKS else coarse[:: math.ceil(len(coarse) / _MOST_TICKS)]


def budget_plot(title: str, lines: Sequence[BudgetLine]) -> Html:
    """Draw a line per method; it is faint where nothing more was bought."""
    every = [budget for line in lines for budget in line.budgets]
    axis = _BudgetAxis(min(every), max(*every, min(every) * 1.01))
    said = "; ".join(f"{line.label} {rate(line.shares[-1])} for {_amount(line.budgets[-1])}" for line in lines)
    drawn = element(
        "svg",
        *_grid(axis),
        *(part for place, line in enumerate(lines) for part in _line(line, axis, _style(place))),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=f"{title}: {said}",
        class_="shares",
    )
    return element("figure", element("figcaption", title), drawn, _legend(lines))


def _style(place: int) -> str:
    return f"stroke:var(--c{place % MOST_LINES});stroke-dasharray:{_DASHES[place % len(_DASHES)] or 'none'}"


def _height_of(share: float) -> float:
    return _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)


def _grid(axis: _BudgetAxis) -> Iterator[Html]:
    for share in _SHARES:
        y = f"{_height_of(share):.1f}"
        yield element("line", x1=str(_LEFT), x2=str(_WIDTH - _RIGHT), y1=y, y2=y)
        yield element("text", rate(share), x=str(_LEFT - 8), y=f"{_height_of(share) + 4:.1f}", text_anchor="end")
    for budget in axis.ticks():
        yield element(
            "text", _amount(budget), x=f"{axis.at(budget):.1f}", y=str(_HEIGHT - _BOTTOM + 18), text_anchor="middle"
        )


def _line(line: BudgetLine, axis: _BudgetAxis, style: str) -> Iterator[Html]:
    places = [
        f"{axis.at(budget):.1f},{_height_of(share):.1f}"
        for budget, share in zip(line.budgets, line.shares, strict=True)
    ]
    bought = line.spent_at
    for kind, points in ((None, places[: bought + 1]), ("spent", places[bought:])):
        if len(points) > 1:
            yield element("polyline", element("title", line.label), points=" ".join(points), style=style, class_=kind)


def _legend(lines: Sequence[BudgetLine]) -> Html:
    methods = (element("span", _swatch(_style(place)), f" {line.label}") for place, line in enumerate(lines))
    return element("p", *methods, element("span", "faint: nothing more was bought"), class_="legend")


def _swatch(style: str) -> Html:
    drawn = element("polyline", points="0,5 26,5", style=style)
    return element("svg", drawn, viewBox="0 0 26 10", class_="swatch", aria_hidden="true")


def _amount(value: float) -> str:
    """Format a budget: ``0.05``, ``20``, ``5k``, ``2M``."""
    for size, sign in _THOUSANDS:
        if value >= size:
            return f"{value / size:g}{sign}"
    return f"{value:g}"
