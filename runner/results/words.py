"""Findings in words, the same wherever a person reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from runner.core.vocab import ClockPolicy, ClockState, Status

CAUSES: Final = (Status.THROTTLED.value, Status.CONTENDED.value)
"""What the cause of a discarded sample starts with: ``throttled: sw_power_cap``, ``contended: pid 4242``."""
DISCARDED: Final = ("discarded_samples", *(f"discarded_{cause}" for cause in CAUSES))
"""The columns that count discarded samples: all of them, then those of each cause."""

_AS_WANTED = frozenset({ClockState.LOCKED.value, ClockState.NOT_APPLICABLE.value})


def clocks_said(state: str, policy: str) -> str:
    """The state of the clocks, and the policy too where that wanted them locked and they were not."""
    return state if clocks_as_wanted(state, policy) else f"{state} (policy {policy})"


def clocks_as_wanted(state: str, policy: str) -> bool:
    """Whether the clocks were as the policy wants them, on a device that has any to lock."""
    return policy == ClockPolicy.OBSERVE.value or state in _AS_WANTED


def discards(row: Mapping[str, int]) -> dict[str, int]:
    """Cause → samples, of a row with the columns :data:`DISCARDED`; ``other`` for the rest."""
    known = {cause: row[f"discarded_{cause}"] for cause in CAUSES}
    return known | {"other": row["discarded_samples"] - sum(known.values())}


def discards_said(by_cause: Mapping[str, int]) -> str:
    """``5 throttled, 2 contended``; empty where nothing was discarded."""
    return ", ".join(f"{number} {cause}" for cause, number in by_cause.items() if number)
