"""Plot of shares over budgets as SVG: complete without a script, in the colours of the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kernel_matrix.report.line_plots import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    LogAxis,
    amount,
    line_legend,
    line_style,
)
from kernel_matrix.report.markup import Html, element
from kernel_matrix.report.number_format import rate

_SHARES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)


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


def budget_plot(title: str, lines: Sequence[BudgetLine]) -> Html:
    """Draw a line per method; it is faint where nothing more was bought."""
    every = [budget for line in lines for budget in line.budgets]
    axis = LogAxis(min(every), max(*every, min(every) * 1.01))
    said = "; ".join(f"{line.label} {rate(line.shares[-1])} for {amount(line.budgets[-1])}" for line in lines)
    drawn = element(
        "svg",
        *_grid(axis),
        *(part for place, line in enumerate(lines) for part in _line(line, axis, line_style(place))),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{title}: {said}",
        class_="shares",
    )
    return element(
        "figure",
        element("figcaption", title),
        drawn,
        line_legend([line.label for line in lines], "faint: nothing more was bought"),
    )


def _height_of(share: float) -> float:
    return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)


def _grid(axis: LogAxis) -> Iterator[Html]:
    for share in _SHARES:
        y = f"{_height_of(share):.1f}"
        yield element("line", x1=str(LEFT), x2=str(WIDTH - RIGHT), y1=y, y2=y)
        yield element("text", rate(share), x=str(LEFT - 8), y=f"{_height_of(share) + 4:.1f}", text_anchor="end")
    for budget in axis.ticks():
        yield element(
            "text", amount(budget), x=f"{axis.at(budget):.1f}", y=str(HEIGHT - BOTTOM + 18), text_anchor="middle"
        )


def _line(line: BudgetLine, axis: LogAxis, style: str) -> Iterator[Html]:
    places = [
        f"{axis.at(budget):.1f},{_height_of(share):.1f}"
        for budget, share in zip(line.budgets, line.shares, strict=True)
    ]
    bought = line.spent_at
    for kind, points in ((None, places[: bought + 1]), ("spent", places[bought:])):
        if len(points) > 1:
            yield element("polyline", element("title", line.label), points=" ".join(points), style=style, class_=kind)
