"""Coverage of intervals, from two sessions on."""

import math
import random

import pytest

from kernel_matrix.measure.intervals import log_interval


def test_the_interval_is_students_on_logarithms():
    # t(0.975, 4) = 2.776445; the logarithms have mean 0 and standard deviation sqrt(0.000025)
    values = [math.exp(x) for x in (-0.005, -0.005, 0.0, 0.005, 0.005)]
    found = log_interval(values)
    reach = 2.7764451 * 0.005 / math.sqrt(5)
    assert found.estimate == pytest.approx(1)
    assert (found.low, found.high) == pytest.approx((math.exp(-reach), math.exp(reach)))
    assert found.half_width == pytest.approx(math.expm1(reach))
    assert not found.excludes_one


@pytest.mark.parametrize("level", [0.90, 0.95, 0.99])
@pytest.mark.parametrize("sessions", [2, 3, 5, 10])
def test_it_covers_what_it_claims(sessions, level):
    dice = random.Random(sessions)
    trials = 4000
    covered = 0
    for _ in range(trials):
        found = log_interval([1.5 * math.exp(dice.gauss(0, 0.02)) for _ in range(sessions)], level)
        covered += found.low <= 1.5 <= found.high
    assert covered / trials == pytest.approx(level, abs=4 * math.sqrt(level * (1 - level) / trials))


def test_one_value_says_nothing_about_the_next():
    found = log_interval([1.25])
    assert (found.estimate, found.low, found.high, found.half_width) == (1.25, 0, math.inf, math.inf)
    assert not found.excludes_one


def test_equal_values_leave_no_doubt():
    found = log_interval([2.0, 2.0, 2.0])
    assert (found.low, found.high, found.half_width) == pytest.approx((2.0, 2.0, 0.0))
    assert found.excludes_one


def test_values_beyond_any_measure_do_not_overflow():
    assert log_interval([1e-300, 1e300]).high == math.inf


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [-1.0]])
def test_what_is_no_time_is_refused(values):
    with pytest.raises(ValueError, match="all of them positive"):
        log_interval(values)
