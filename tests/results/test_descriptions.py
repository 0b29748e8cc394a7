from __future__ import annotations

from pathlib import Path

import pytest

from kernel_matrix.model.enums import ClockPolicy, ClockState
from kernel_matrix.results.descriptions import (
    LABELS,
    describe_clocks,
    describe_discards,
    describe_label,
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


def test_a_label_is_explained_whomever_it_names() -> None:
    assert describe_label("rival_failed:compile") == describe_label("rival_failed") == LABELS["rival_failed"]
    assert describe_label("of a later version") == ""


@pytest.mark.torch
def test_every_label_of_a_judge_and_of_the_host_is_explained() -> None:
    from kernel_matrix.attempt import contestants, sanitizing  # noqa: PLC0415  # what they import, other tests do without
    from kernel_matrix.inside.judge import (  # noqa: PLC0415
        claims,
        device_readings,
        replay_modes,
        session_ended,
        verification,
        warm_up,
        workload_runner,
    )
    from kernel_matrix.model import messages  # noqa: PLC0415
    from kernel_matrix.sources import measurement  # noqa: PLC0415  # beside the others

    labels = {
        *(messages.INTERPRETED, claims.LOW_RESOLUTION, f"{replay_modes.NOT_CAPTURABLE}:candidate"),
        *(warm_up.UNSTEADY, warm_up.UNKNOWN, "budget_reached", "too_few_samples"),
        *(verification.INSENSITIVE, verification.PRECISION_BLIND, verification.HARD_OUTLIERS),
        session_ended.rival_failed("compile"),
        *(
            device_readings.NO_CLOCK_PROBE,
            device_readings.NO_ANCHOR,
            workload_runner.NO_TRACE,
            workload_runner.NOT_REPLAYABLE,
        ),
        *(contestants.NO_LIBRARY, sanitizing.NO_SANITIZER),
        *(measurement.MEAN, measurement.UNTIMED, measurement.HOST_CLOCK),
    }
    assert {label for label in labels if not describe_label(label)} == set()
    assert {label.partition(":")[0] for label in labels} == set(LABELS)


def test_a_verdict_is_told_with_its_grade() -> None:
    assert (describe_verdict("faster", "B"), describe_verdict(None, "C"), describe_verdict(None, None)) == (
        "faster B",
        "C",
        "",
    )


def test_labels_are_in_the_documentation_word_for_word() -> None:
    text = (Path(__file__).parents[2] / "docs" / "records.md").read_text(encoding="utf-8")
    assert [label for label, meaning in LABELS.items() if f"| `{label}` | {meaning} |" not in text] == []
