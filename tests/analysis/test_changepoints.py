"""Steps and slopes over nights: false positives and power."""

import numpy as np
import polars as pl
import pytest
from scipy.stats import theilslopes

from kernel_matrix.analysis.changepoints import _best_split as best_split
from kernel_matrix.analysis.changepoints import chance_of, drift, find_changes, slopes
from kernel_matrix.analysis.differences import benjamini_hochberg
from kernel_matrix.analysis.questions import QuestionOptions
from kernel_matrix.errors import NothingSelectedError
from tests.analysis.made import cell, over_sessions, tables


def look(values, seed=1):
    count, nights = values.shape
    return find_changes(values.ravel(), np.arange(count) * nights, np.full(count, nights), seed=seed)


def stepped(rng, count, shift=0.03, nights=20, noise=0.01):
    values = rng.normal(0, noise, (count, nights))
    values[:, nights // 2 :] += np.log1p(shift)
    return values


@pytest.mark.parametrize("nights", [12, 20, 60])
def test_noise_steps_at_most_once_in_a_hundred(nights):
    rng = np.random.default_rng(nights)
    assert len(look(rng.normal(0, 0.01, (1000, nights))).places) <= 1
    alone = [len(look(rng.normal(0, 0.01, (1, nights)), seed).places) > 0 for seed in range(600)]
    assert np.mean(alone) <= 0.018  # 0.01 and two standard errors


def test_a_step_of_three_percent_is_found_among_others_and_alone():
    rng = np.random.default_rng(2)
    found = look(stepped(rng, 1000))
    assert len(set(found.stretches)) >= 950
    assert np.mean(np.abs(found.places % 20 - 10) <= 1) >= 0.9
    alone = [len(look(stepped(rng, 1), seed).places) > 0 for seed in range(500)]
    assert np.mean(alone) >= 0.95


def test_the_bound_of_chance_is_close_and_never_too_low():
    rng = np.random.default_rng(4)
    noise = rng.normal(size=(40000, 20))
    p = chance_of(best_split(noise - noise.mean(axis=1, keepdims=True))[1], 20)
    for level in (0.05, 0.01):
        assert 0.7 * level <= np.mean(p <= level) <= 1.1 * level


def test_two_steps_are_both_found():
    values = np.random.default_rng(5).normal(0, 0.005, (1, 50))
    values[0, 15:35] += 0.05
    values[0, 35:] += 0.02
    assert sorted(look(values).places) == [15, 35]


def test_what_a_line_explains_better_is_no_step():
    values = np.random.default_rng(9).normal(0, 0.005, (200, 40)) + 0.002 * np.arange(40)
    assert len(look(values).places) <= 2


def test_heavy_tails_and_correlated_nights_are_no_steps():
    rng = np.random.default_rng(6)
    assert len(look(rng.standard_t(3, (1000, 30)) * 0.01).places) <= 2
    noise = rng.normal(0, 0.01, (500, 60))
    for night in range(1, 60):
        noise[:, night] += 0.5 * noise[:, night - 1]
    found = look(noise)
    assert found.correlation == pytest.approx(0.5, abs=0.1)
    assert len(found.places) <= 5


@pytest.mark.parametrize("values", [np.zeros((3, 20)), np.zeros((0, 20)), np.zeros((2, 4))])
def test_nothing_moves_where_nothing_can(values):
    assert len(look(values).places) == 0


def test_slopes_are_those_of_scipy():
    rng = np.random.default_rng(7)
    days = np.sort(rng.choice(90, 25, replace=False)).astype(float)
    values = rng.normal(0, 0.01, (3, 25)) + 0.0005 * days
    slope, low, high, p = slopes(values, np.tile(days, (3, 1)))
    for row in range(3):
        wanted = theilslopes(values[row], days, alpha=0.95)
        assert (slope[row], low[row], high[row]) == pytest.approx((wanted[0], wanted[2], wanted[3]))
    assert p.max() < 0.01


def test_the_slope_of_noise_is_rarely_one():
    values = np.random.default_rng(8).normal(size=(4000, 20))
    p = slopes(values, np.tile(np.arange(20.0), (4000, 1)))[3]
    assert np.mean(p <= 0.01) == pytest.approx(0.01, abs=0.006)
    assert benjamini_hochberg(p).min() > 0.01


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
