from __future__ import annotations

import pytest

from kernel_matrix.model.enums import ClockPolicy, ClockState, VerdictReason
from kernel_matrix.results.descriptions import (
    describe_clocks,
    describe_discards,
    describe_reason,
    describe_verdict,
    discards,
)
from tests.own_python import ROOT


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


@pytest.mark.parametrize("reason", VerdictReason)
def test_describe_reason_knows_every_reason(reason: VerdictReason) -> None:
    assert describe_reason(reason.value, 1.0).startswith(f"{reason.value} 1")


def test_describe_reason_writes_its_figure_as_what_it_is() -> None:
    assert describe_reason("one_session", 0.05) == "one_session 5 %"
    assert describe_reason("bound_below_1", 0.9712) == "bound_below_1 0.971x"
    assert describe_reason("few_calls", 8.0) == "few_calls 8"
    assert describe_reason("few_sessions", None) == "few_sessions"
    assert describe_reason(None, None) == ""


def test_every_verdict_reason_is_in_the_documentation() -> None:
    text = (ROOT / "docs" / "reference" / "records.md").read_text()
    assert [reason.value for reason in VerdictReason if f"| `{reason.value}` |" not in text] == []
