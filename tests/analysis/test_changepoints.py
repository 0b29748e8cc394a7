"""Answers of ``drift``: steps, slopes and changes of the environment."""

import numpy as np
import polars as pl
import pytest

from kernel_matrix.analysis.changepoints import drift
from kernel_matrix.analysis.questions import QuestionOptions
from kernel_matrix.errors import NothingSelectedError
from tests.analysis.made import cell, over_sessions, tables


def nightly(times, *, seed=0, **columns):
    """Three sessions a night of a candidate that takes ``times[night]`` and of a baseline of 200 µs."""
    rng = np.random.default_rng(seed)
    for night, ns in enumerate(times):
        several = columns.get("changes", {}).get(night, {})
        noise = np.exp(rng.normal(0, 0.003, (3, 2)))
        rest = {name: value for name, value in columns.items() if name != "changes"}
        yield from over_sessions([(2e5 * a, ns * b) for a, b in noise], night=night, **rest, **several)


def answers(rows, **request):
    return {answer.name: answer for answer in drift(tables(rows), QuestionOptions(**request))}


def test_a_step_is_told_with_its_night_and_size():
    found = answers(nightly([1e5] * 12 + [1.05e5] * 12, candidate="softmax/Ünïcode"))
    steps = found["steps"].table
    assert sorted(steps["of"]) == ["candidate", "speedup"]
    row = steps.filter(pl.col("of") == "candidate").row(0, named=True)
    assert (row["candidate"], str(row["night"]), str(row["night_before"])) == (
        "softmax/Ünïcode",
        "2026-03-13",
        "2026-03-12",
    )
    assert row["low_percent"] < 5.0 < row["high_percent"]
    assert (row["nights_before"], row["nights_after"], row["matters"]) == (12, 12, True)


@pytest.mark.parametrize(
    ("column", "what"),
    [("driver", "driver"), ("image_id", "image"), ("gpu_uuid", "unit"), ("candidate_sha256", "candidate's source")],
)
def test_what_the_environment_does_is_named_and_is_no_finding(column, what):
    changes = {night: {column: "new"} for night in range(12, 24)}
    found = answers(nightly([1e5] * 12 + [1.05e5] * 12, changes=changes))
    assert found["steps"].table.is_empty()
    (row,) = found["environment"].table.to_dicts()
    assert (str(row["night"]), row["what"], row["after"], row["cells"]) == ("2026-03-13", what, "new", 1)
    assert row["time_shift_percent"] == pytest.approx(5.0, abs=1.0)


def test_environment_changes_of_equal_size_are_in_fixed_order():
    rows = [
        row
        for number in (4, 0, 6, 2, 7, 3, 5, 1)
        for row in nightly([1e5] * 2, candidate=f"softmax/{number}", changes={1: {"driver": f"new {number}"}})
    ]
    assert list(answers(rows)["environment"].table["after"]) == [f"new {number}" for number in range(8)]


def test_slow_drift_is_a_slope_and_common_steps_environment():
    found = answers(nightly(1e5 * 1.001 ** np.arange(30)))
    row = found["slopes"].table.filter(pl.col("of") == "candidate").row(0, named=True)
    assert row["low_percent"] < 3.04 < row["high_percent"]
    rows = [
        row
        for number in range(6)
        for row in nightly([1e5] * 12 + [1.05e5] * 12, candidate=f"softmax/{number}", seed=number)
    ]
    notes = answers(rows)["steps"].notes
    assert any("6 of 6 series of the candidate step up together" in note for note in notes)


def test_a_level_seen_before_is_no_step_and_is_said():
    times = [*[1e5] * 10, *[1.05e5] * 10, *[1e5] * 10]
    found = answers(nightly(times))
    assert found["steps"].table.is_empty()
    assert found["slopes"].table.is_empty()
    assert any("go back and forth between two levels" in note for note in found["steps"].notes)


def test_few_nights_and_odd_times_are_said():
    rows = [
        *nightly([1e5] * 3),
        cell(candidate_median_ns=float("inf"), baseline_median_ns=1e5, night=5),
        cell(candidate_median_ns=1e5, baseline_median_ns=None, night=6, candidate="softmax/alone"),
    ]
    found = answers(rows)
    assert all(found[name].table.is_empty() for name in ("steps", "slopes", "environment"))
    assert "have fewer than" in found["steps"].notes[0]
    assert "1 series have one night" in found["nights"].notes[0]


@pytest.mark.parametrize("rows", [[], [cell(status="infra_error", fault="infra", session_status="infra_error")]])
def test_nothing_timed_is_said(rows):
    with pytest.raises(NothingSelectedError, match="no session passed"):
        answers(rows)
