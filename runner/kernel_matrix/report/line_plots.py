"""Parts of plots with lines as SVG: sizes, logarithmic axes, and the lines' looks, in the colours of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kernel_matrix.report.markup import Html, element

MOST_LINES: Final = 12
"""Colours of the page."""
WIDTH: Final = 400  # narrow, so that texts can be read where the plot is shrunk to a telephone's width
HEIGHT: Final = 220
LEFT: Final = 48
"""Space for the values."""
RIGHT: Final = 16
TOP: Final = 10
BOTTOM: Final = 30
"""Space for what is plotted across."""
_MOST_TICKS: Final = 7
_DASHES: Final = ("", "7 3", "2 3", "9 3 2 3")
"""Patterns in turn, so that lines differ without colours."""
_THOUSANDS: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class LogAxis:
    """Logarithmic axis from ``low`` at the place ``start`` to ``high`` at ``stop``."""

    low: float
    high: float
    start: float = LEFT
    stop: float = WIDTH - RIGHT

    def at(self, value: float) -> float:
        """Return the place of ``value``."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.stop - self.start)

    def ticks(self) -> list[float]:
        """Choose the finest round values that are not too many."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        fine, coarse = (
            [tick for power in powers for step in steps if self.low <= (tick := float(f"{step}e{power}")) <= self.high]
            for steps in ((1, 2, 5), (1,))
        )
        return fine if len(fine) <= _MOST_TICKS else coarse[:: math.ceil(len(coarse) / _MOST_TICKS)]


def line_style(place: int) -> str:
    """Return the look of the line at ``place``."""
    return f"stroke:var(--c{place % MOST_LINES});stroke-dasharray:{_DASHES[place % len(_DASHES)] or 'none'}"


def line_legend(labels: Sequence[str], *further: str) -> Html:
    """Write the names of the lines, each with its look, and ``further`` remarks."""
    names = (element("span", _swatch(line_style(place)), f" {label}") for place, label in enumerate(labels))
    return element("p", *names, *(element("span", remark) for remark in further), class_="legend")


def _swatch(style: str) -> Html:
    drawn = element("polyline", points="0,5 26,5", style=style)
    return element("svg", drawn, viewBox="0 0 26 10", class_="swatch", aria_hidden="true")


def amount(value: float) -> str:
    """Format a round number: ``0.05``, ``20``, ``5k``, ``2M``."""
    for size, sign in _THOUSANDS:
        if value >= size:
            return f"{value / size:g}{sign}"
    return f"{value:g}"
