from __future__ import annotations

import pytest

from kernel_matrix.model.enums import ClockPolicy, ClockState
from kernel_matrix.results.descriptions import (
    describe_clocks,
    describe_discards,
    describe_verdict,
    discards,
)


@pytest.mark.parametrize(
    ("state", "policy", "said"),
    [
        (ClockState.LOCKED, ClockPolicy.LOCK, "locked"),
        (ClockState.UNLOCKED, ClockPolicy.OBSERVE, "unlocked"),
        (ClockState.THROTTLED, ClockPolicy.OBSERVE, "throttled"),
        (ClockState.NOT_APPLICABLE, ClockPolicy.REQUIRE, "not_applicable"),
        (ClockState.UNLOCKED, ClockPolicy.LOCK, "unlocked (policy lock)"),
        (ClockState.UNLOCKED, ClockPolicy.REQUIRE, "unlocked (policy require)"),
        (ClockState.THROTTLED, ClockPolicy.LOCK, "throttled (policy lock)"),
    ],
)
def test_a_policy_that_was_not_met_is_never_hidden(state: ClockState, policy: ClockPolicy, said: str) -> None:
    assert describe_clocks(state.value, policy.value) == said


def test_discards_are_told_by_cause_and_only_where_there_are_any() -> None:
    row = {"discarded_samples": 8, "discarded_throttled": 5, "discarded_contended": 0}
    assert discards(row) == {"throttled": 5, "contended": 0, "other": 3}
    assert describe_discards(discards(row)) == "5 throttled, 3 other"
    assert describe_discards(discards(dict.fromkeys(row, 0))) == ""


def test_a_verdict_is_told_with_its_grade() -> None:
    assert (describe_verdict("faster", "B"), describe_verdict(None, "C"), describe_verdict(None, None)) == (
        "faster B",
        "C",
        "",
    )
