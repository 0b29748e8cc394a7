"""Findings in words, the same wherever a person reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from runner.core.vocab import ClockPolicy, ClockState, Status

CAUSES: Final = (Status.THROTTLED.value, Status.CONTENDED.value)
"""What the cause of a discarded sample starts with: ``throttled: sw_power_cap``, ``contended: pid 4242``."""

_AS_WANTED = frozenset({ClockState.LOCKED.value, ClockState.NOT_APPLICABLE.value})


def clocks_said(state: str, policy: str) -> str:
    """The state of the clocks, and the policy too where that wanted them locked and they were not."""
    if policy == ClockPolicy.OBSERVE.value or state in _AS_WANTED:
        return state
    return f"{state} (policy {policy})"


def discards(row: Mapping[str, int]) -> dict[str, int]:
    """Cause → samples, of a row with ``discarded_samples`` and ``discarded_<cause>``; ``other`` for the rest."""
    known = {cause: row[f"discarded_{cause}"] for cause in CAUSES}
    return known | {"other": row["discarded_samples"] - sum(known.values())}


def discards_said(by_cause: Mapping[str, int]) -> str:
    """``5 throttled, 2 contended``; empty where nothing was discarded."""
    return ", ".join(f"{number} {cause}" for cause, number in by_cause.items() if number)
