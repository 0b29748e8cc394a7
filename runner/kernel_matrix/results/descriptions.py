"""Findings in words, the same wherever a person reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kernel_matrix.model.enums import ClockPolicy, ClockState, Status

CAUSES: Final = (Status.THROTTLED.value, Status.CONTENDED.value)
"""What the cause of a discarded sample starts with: ``throttled: sw_power_cap``, ``contended: pid 4242``."""
DISCARDED: Final = ("discarded_samples", *(f"discarded_{cause}" for cause in CAUSES))
"""The columns that count discarded samples: all of them, then those of each cause."""

LABELS: Final = {
    "budget_reached": "the time for timed calls was over before the median was as precise as asked for",
    "hard_outliers": "on inputs with outliers the reference itself is beyond tolerance; twice as far was let pass",
    "host_clock": "imported: timed by the host's clock, launches included",
    "insensitive": "the reference hardly changes with one of its inputs: a wrong answer may pass",
    "interpreted": "Triton kernels ran through the interpreter: right or wrong can be told, speed cannot",
    "low_resolution": "the calls are too short for the judge's own clock to confirm the claimed times",
    "mean_not_median": "imported: what is called a median is a mean",
    "no_anchor": "the judge's own kernels could not be timed: the machine's drift is not known",
    "no_clock_probe": "the clock could not be read inside a kernel",
    "no_library": "the problem names no library's call to compare with",
    "no_sanitizer": "the image has no compute-sanitizer, or there is no GPU: that pass was left out",
    "no_trace": "no tracer saw the candidate's kernels: nothing is known of what ran",
    "not_capturable": "calls could not be captured in a CUDA graph, and were repeated one by one instead",
    "not_timed": "imported: judged, but not timed",
    "not_replayable": "the problem writes into its inputs: calls could not be repeated on them, only cold ones count",
    "precision_blind": "the same computation one precision lower passes too: the problem cannot tell them apart",
    "rival_failed": "a further baseline failed and was left out",
    "steadiness_unknown": "the driver does not say whether clock and temperature had settled before timing",
    "too_few_samples": "the time for timed calls was over before the fewest that were asked for",
    "unsteady": "clock or temperature had not settled when timing began",
}
"""What a label of a session means; ``rival_failed:compile`` is looked up without what follows the colon."""

_AS_WANTED = frozenset({ClockState.LOCKED.value, ClockState.NOT_APPLICABLE.value})


def printable(text: str) -> str:
    """``text`` on one line and without anything a terminal would obey: files and candidates chose it."""
    return "".join(c if c.isprintable() else " " for c in text).strip()


def clocks_said(state: str | None, policy: str | None) -> str:
    """The state of the clocks, and the policy too where that wanted them locked and they were not."""
    return state or "" if clocks_as_wanted(state, policy) else f"{state} (policy {policy})"


def clocks_as_wanted(state: str | None, policy: str | None) -> bool:
    """Whether the clocks were as the policy wants them, on a device that has any to lock; so where neither is known."""
    return policy is None or policy == ClockPolicy.OBSERVE.value or state in _AS_WANTED


def label_said(label: str) -> str:
    """What ``label`` means; empty for one that this version does not know."""
    return LABELS.get(label.partition(":")[0], "")


def verdict_said(verdict: str | None, grade: str | None) -> str:
    """``faster B``; empty where nothing was compared."""
    return " ".join(word for word in (verdict, grade) if word)


def discards(row: Mapping[str, int]) -> dict[str, int]:
    """Cause → samples, of a row with the columns :data:`DISCARDED`; ``other`` for the rest."""
    known = {cause: row[f"discarded_{cause}"] for cause in CAUSES}
    return known | {"other": row["discarded_samples"] - sum(known.values())}


def discards_said(by_cause: Mapping[str, int]) -> str:
    """``5 throttled, 2 contended``; empty where nothing was discarded."""
    return ", ".join(f"{number} {cause}" for cause, number in by_cause.items() if number)
