"""Words for clocks, verdicts and discarded samples, the same in every output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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
_SENTENCES: Final[Mapping[VerdictReason, str]] = {
    VerdictReason.BEYOND_MARGIN: "the sessions show a difference beyond the margin: at least {}",
    VerdictReason.BEYOND_FLOOR: "the difference is more than {}, which sessions of equal code do not reach",
    VerdictReason.WITHIN_MARGIN: "the sessions show a difference within the margin: at most {}",
    VerdictReason.ONE_SESSION: "one session shows only differences of more than {}: take more sessions",
    VerdictReason.ONE_BLOCK: "blocks of each that were timed: {}, so their noise is not known",
    VerdictReason.BLOCKS_DISAGREE: "the blocks of the session vary: only a difference of {} or more would show",
    VerdictReason.SESSIONS_DISAGREE: "some sessions say faster and some slower; they differ by {}",
    VerdictReason.FEW_SESSIONS: "the sessions agree, but are too few: their 99 % interval reaches {}",
    VerdictReason.SMALL_DIFFERENCE: "there is a difference, but perhaps not beyond the margin: at least {}",
    VerdictReason.COARSE_CLOCK: "the device's clock does not resolve the difference: its tick is {} of the time",
    VerdictReason.BOUND_BELOW_1: "by the judge's own clock the calls may have been as slow as {}",
    VerdictReason.FEW_CALLS: "single calls that were timed: {}, too few for a median",
    VerdictReason.SCATTERED: "{} of the single calls are 1.5x off their median, which does not describe them",
    VerdictReason.AUDIT_OBJECTS: "checks of the audit that object: {}",
    VerdictReason.ONE_OF_MANY: "of all verdicts of the table, too many like this one would be chance ({})",
}
"""Sentence for each reason, with a place for its figure."""


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


def describe_shapes(row: Mapping[str, Any]) -> str:
    """Return the workload of a row, and its ranks if there are several: ``[default, 4 ranks]``; empty for neither."""
    parts = [part for part in (row["workload"], describe_ranks(row.get("ranks") or 1)) if part]
    return f"[{', '.join(parts)}]" if parts else ""


def describe_ranks(ranks: int) -> str:
    """Return for example ``4 ranks``; empty for one."""
    return f"{ranks} ranks" if ranks > 1 else ""


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
    return " ".join(filter(None, (reason, _figure(reason, figure))))


def explain_reason(reason: str | None, figure: float | None) -> str:
    """Return a sentence that explains the reason of a verdict; empty if there is none."""
    return "" if reason is None else _SENTENCES[VerdictReason(reason)].format(_figure(reason, figure) or "unknown")


def _figure(reason: str | None, figure: float | None) -> str:
    if reason is None or figure is None:
        return ""
    form = _FIGURES[VerdictReason(reason)]
    return form.format(100 * figure if form is _SHARE else figure).replace(".0 ", " ")


def discards(row: Mapping[str, int]) -> dict[str, int]:
    """Return the number of discarded samples by cause, from a row with the columns :data:`DISCARDED`.

    All other causes are counted under ``other``.
    """
    known = {cause: row[f"discarded_{cause}"] for cause in CAUSES}
    return known | {"other": row["discarded_samples"] - sum(known.values())}


def describe_discards(by_cause: Mapping[str, int]) -> str:
    """Return for example ``5 throttled, 2 contended``; empty if nothing was discarded."""
    return ", ".join(f"{number} {cause}" for cause, number in by_cause.items() if number)
