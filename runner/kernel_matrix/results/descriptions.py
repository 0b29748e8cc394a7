"""Words for labels, clocks, verdicts and discarded samples, the same in every output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kernel_matrix.model.enums import ClockPolicy, ClockState, Status

CAUSES: Final = (Status.THROTTLED.value, Status.CONTENDED.value)
"""First word of the cause of a discarded sample: ``throttled: sw_power_cap``, ``contended: pid 4242``."""
DISCARDED: Final = ("discarded_samples", *(f"discarded_{cause}" for cause in CAUSES))
"""Columns that count discarded samples: the total, then one per cause."""

LABELS: Final = {
    "budget_reached": "the time for timed calls was over before the median was as precise as asked for",
    "hard_outliers": "on outlier inputs the reference itself exceeds the tolerance; up to twice its error was accepted",
    "host_clock": "imported: timed by the host's clock, launches included",
    "insensitive": "the reference hardly depends on one of its inputs: a wrong answer may pass",
    "interpreted": "Triton kernels ran through the interpreter: correctness is known, speed is not",
    "low_resolution": "the calls are too short for the judge's own clock to confirm the claimed times",
    "mean_not_median": "imported: the time given as a median is a mean",
    "no_anchor": "the judge's own kernels could not be timed: the machine's drift is not known",
    "no_clock_probe": "the clock could not be read inside a kernel",
    "no_library": "the problem names no library call to compare with",
    "no_sanitizer": "the image has no compute-sanitizer, or there is no GPU: that pass was left out",
    "no_trace": "no tracer recorded the candidate's kernels: it is not known which kernels ran",
    "not_capturable": "calls could not be captured in a CUDA graph, and were repeated one by one instead",
    "not_timed": "imported: judged, but not timed",
    "not_replayable": "the problem writes into its inputs: calls could not be repeated on them, only cold ones count",
    "precision_blind": "the same computation one precision lower passes too: the problem cannot tell them apart",
    "rival_failed": "a further baseline failed and was left out",
    "steadiness_unknown": "the driver does not say whether clock and temperature had settled before timing",
    "too_few_samples": "the time for timed calls was over before the fewest that were asked for",
    "unsteady": "clock or temperature had not settled when timing began",
}
"""Label of a session → its meaning. ``rival_failed:compile`` is looked up by the part before the colon."""

_AS_WANTED = frozenset({ClockState.LOCKED.value, ClockState.NOT_APPLICABLE.value})


def printable(text: str) -> str:
    """Return ``text`` on one line without control characters, because files and candidates may have chosen it."""
    return "".join(c if c.isprintable() else " " for c in text).strip()


def describe_clocks(state: str | None, policy: str | None) -> str:
    """Return the state of the clocks; add the policy if it wanted locked clocks and did not get them."""
    return state or "" if clocks_match_policy(state, policy) else f"{state} (policy {policy})"


def clocks_match_policy(state: str | None, policy: str | None) -> bool:
    """Return whether the clocks agree with the policy; ``True`` if neither is known or nothing can be locked."""
    return policy is None or policy == ClockPolicy.OBSERVE.value or state in _AS_WANTED


def describe_label(label: str) -> str:
    """Return the meaning of ``label``; empty if this version does not know it."""
    return LABELS.get(label.partition(":")[0], "")


def describe_verdict(verdict: str | None, grade: str | None) -> str:
    """Return for example ``faster B``; empty if nothing was compared."""
    return " ".join(word for word in (verdict, grade) if word)


def discards(row: Mapping[str, int]) -> dict[str, int]:
    """Return the number of discarded samples by cause, from a row with the columns :data:`DISCARDED`.

    All other causes are counted under ``other``.
    """
    known = {cause: row[f"discarded_{cause}"] for cause in CAUSES}
    return known | {"other": row["discarded_samples"] - sum(known.values())}


def describe_discards(by_cause: Mapping[str, int]) -> str:
    """Return for example ``5 throttled, 2 contended``; empty if nothing was discarded."""
    return ", ".join(f"{number} {cause}" for cause, number in by_cause.items() if number)
