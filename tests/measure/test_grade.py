"""Grades, with the reason for each."""

import random

import pytest

from kernel_matrix.measure.grade import grade, spread_between, spread_within
from kernel_matrix.model.enums import Grade

GOOD = {"sessions": 5, "within": 0.004, "between": 0.002, "drift": 0.01, "clocks_locked": True}


@pytest.mark.parametrize(
    ("changes", "expected", "reason"),
    [
        ({}, Grade.A, ""),
        ({"within": 0.010}, Grade.A, ""),
        ({"within": 0.0101}, Grade.B, "spread within sessions 1.0 %"),
        ({"between": 0.02}, Grade.B, "spread between sessions 2.0 %"),
        ({"drift": 0.015, "clocks_locked": False}, Grade.B, "machine drift 1.5 %, clocks not locked"),
        ({"clocks_locked": False}, Grade.B, "clocks not locked"),
        ({"alone": False}, Grade.C, "exclusive use of the device was not proven"),
        ({"platform_proven": False}, Grade.C, "the platform was not proven on real devices"),
        ({"pinned": False}, Grade.B, "an environment, not an image"),
        ({"within": 0.031, "between": 0.05}, Grade.C, "spread within sessions 3.1 %, spread between sessions 5.0 %"),
        ({"drift": 0.021}, Grade.C, "machine drift 2.1 %"),
        ({"drift": None}, Grade.C, "machine drift unknown"),
        ({"within": None}, Grade.C, "spread within sessions unknown"),
        ({"sessions": 1}, Grade.C, "one session"),
    ],
)
def test_grades_follow_the_limits(changes, expected, reason):
    found = grade(**{**GOOD, **changes})
    assert (found.grade, found.reason) == (expected, reason)


def test_spread_within_is_deviation_of_undisturbed_calls():
    dice = random.Random(1)
    calls = [dice.gauss(1000, 20) for _ in range(4000)]
    assert spread_within(calls) == pytest.approx(0.02, rel=0.1)
    delayed = [*calls, *([5000] * 200)]
    assert spread_within(delayed) == pytest.approx(0.02, rel=0.2)
    assert spread_within([1.0, 2.0, 3.0]) is None
    assert spread_within([0, 0, 0, 0]) is None


def test_the_spread_between_is_that_of_session_medians():
    assert spread_between([99.0, 101.0]) == pytest.approx(0.01414, rel=1e-3)
    assert spread_between([100.0]) is None
