"""Formatting of numbers, the same in every format of the report."""

from __future__ import annotations

import math
from typing import Final

from kernel_matrix.results.descriptions import printable

DASH: Final = "–"
"""Shown for an unknown value."""

GLYPHS: Final = {
    "faster": "▲",
    "slower": "▼",
    "equivalent": "=",
    "inconclusive": "?",
    "mixed": "◆",
    "untimed": "✓",
    "failed": "✕",
    "uncounted": "·",
}
"""State of a place of the heat map → its sign, so that the map can be read without colours."""

MEANINGS: Final = {
    "faster": "the best candidate is faster than the baseline",
    "slower": "the best candidate passes and is slower",
    "equivalent": "the best candidate is as fast as the baseline",
    "inconclusive": "the sessions do not show whether it is faster",
    "mixed": "verdicts differ between its workloads",
    "untimed": "passes, but its times cannot be compared",
    "failed": "candidates ran and none passed",
    "uncounted": "no candidate counts: infrastructure failure, invalid problem or unsupported here",
}


def times(speedup: float | None) -> str:
    """Format a speed-up: ``1.53×``, ``0.095×``, ``12×``, ``152×``; a dash for None."""
    if speedup is None or math.isnan(speedup):
        return DASH
    if not math.isfinite(speedup):
        return "∞×"
    if speedup == 0:
        return "0×"
    return f"{speedup:.2f}×" if 0.1 <= speedup < 10 else f"{speedup:.3f}×" if speedup < 0.1 else f"{speedup:,.0f}×"


def share(part: int, whole: int) -> str:
    """Format a share: ``63 %``; a dash if ``whole`` is 0. Other shares are never rounded to 0 % or 100 %."""
    if not whole:
        return DASH
    percent = 100 * part / whole
    if 0 < percent < 1 or 99 < percent < 100:
        return f"{percent:.1f} %" if 0.1 <= percent <= 99.9 else ("< 0.1 %" if percent < 1 else "> 99.9 %")
    return f"{percent:.0f} %"


def rate(value: float | None) -> str:
    """Format a share between 0 and 1 as :func:`share` does; a dash for None."""
    return DASH if value is None else share(round(value * 1_000_000), 1_000_000)


def number(count: int, one: str, many: str = "") -> str:
    """Format a count: ``1 cell``, ``20,000 cells``."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def one_line(text: str | None) -> str:
    """Make ``text`` printable and collapse its blanks; empty for None."""
    return " ".join(printable(text or "").split())


def bucket(speedup: float | None) -> str:
    """Return the heat map's colour: ``s4`` (slower than 1/4) … ``s1``, ``even`` (within 5 %), ``f1`` … ``f4``."""
    if speedup is None or math.isnan(speedup):
        return ""
    if speedup <= 0:
        return "s4"
    size = abs(math.log2(speedup)) if math.isfinite(speedup) else math.inf
    if size < math.log2(1.05):
        return "even"
    step = 1 + sum(size >= limit for limit in (math.log2(1.25), 1.0, 2.0))
    return f"{'f' if speedup > 1 else 's'}{step}"
