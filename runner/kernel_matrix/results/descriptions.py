"""Words for clocks, verdicts and discarded samples, the same in every output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kernel_matrix.model.enums import ClockPolicy, ClockState, Status, VerdictReason

CAUSES: Final = (Status.THROTTLED.value, Status.CONTENDED.value)
"""First word of the cause of a discarded sample: ``throttled: sw_power_cap``, ``contended: pid 4242``."""
DISCARDED: Final = ("discarded_samples", *(f"discarded_{cause}" for cause in CAUSES))
"""Columns that count discarded samples: the total, then one per cause."""

_AS_WANTED = frozenset({ClockState.LOCKED.value, ClockState.NOT_APPLICABLE.value})


_RATIO, _SHARE, _NUMBER = "{:.3g}x", "{:.1f} %", "{:.0f}"
_FIGURES: Final[Mapping[VerdictReason, str]] = {
    VerdictReason.BEYOND_MARGIN: _RATIO,
    VerdictReason.BEYOND_FLOOR: _SHARE,
    VerdictReason.WITHIN_MARGIN: "{:.4g}x",
    VerdictReason.ONE_SESSION: _SHARE,
    VerdictReason.ONE_BLOCK: _NUMBER,
    VerdictReason.BLOCKS_DISAGREE: _SHARE,
    VerdictReason.SESSIONS_DISAGREE: _RATIO,
    VerdictReason.FEW_SESSIONS: _RATIO,
    VerdictReason.SMALL_DIFFERENCE: "{:.4g}x",
    VerdictReason.COARSE_CLOCK: _SHARE,
    VerdictReason.BOUND_BELOW_1: _RATIO,
    VerdictReason.FEW_CALLS: _NUMBER,
    VerdictReason.SCATTERED: _SHARE,
    VerdictReason.AUDIT_OBJECTS: _NUMBER,
    VerdictReason.ONE_OF_MANY: _SHARE,
}
"""Form of each reason's figure; shares are shown in percent."""


def visible(text: str) -> str:
    """Return ``text`` with each character that a terminal or a page would obey, and not show, as an escape.

    Files, candidates and problems may have chosen it: control characters begin sequences that clear or rename a
    terminal, and characters for the direction of writing make a line read as another one. Line breaks stay; other
    blanks become a space.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else " " if c.isspace() else _escape(ord(c)) for c in text)


def _escape(code: int) -> str:
    """Return the escape that Python would write."""
    return f"\\x{code:02x}" if code < 1 << 8 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def printable(text: str) -> str:
    """Return :func:`visible` text on one line."""
    return visible(text).replace("\n", " ").strip()


def describe_clocks(state: str | None, policy: str | None) -> str:
    """Return the state of the clocks; add the policy if it wanted locked clocks and did not get them."""
    return state or "" if clocks_match_policy(state, policy) else f"{state} (policy {policy})"


def clocks_match_policy(state: str | None, policy: str | None) -> bool:
    """Return whether the clocks agree with the policy; ``True`` if neither is known or nothing can be locked."""
    return policy is None or policy == ClockPolicy.OBSERVE.value or state in _AS_WANTED


def describe_verdict(verdict: str | None, grade: str | None) -> str:
    """Return for example ``faster B``; empty if nothing was compared."""
    return " ".join(word for word in (verdict, grade) if word)


def describe_reason(reason: str | None, figure: float | None) -> str:
    """Return for example ``one_session 5 %``: the reason of a verdict and the figure that decided."""
    if reason is None or figure is None:
        return reason or ""
    form = _FIGURES[VerdictReason(reason)]
    text = form.format(100 * figure if form is _SHARE else figure)
    return f"{reason} {text.replace('.0 ', ' ')}"


def discards(row: Mapping[str, int]) -> dict[str, int]:
    """Return the number of discarded samples by cause, from a row with the columns :data:`DISCARDED`.

    All other causes are counted under ``other``.
    """
    known = {cause: row[f"discarded_{cause}"] for cause in CAUSES}
    return known | {"other": row["discarded_samples"] - sum(known.values())}


def describe_discards(by_cause: Mapping[str, int]) -> str:
    """Return for example ``5 throttled, 2 contended``; empty if nothing was discarded."""
    return ", ".join(f"{number} {cause}" for cause, number in by_cause.items() if number)
