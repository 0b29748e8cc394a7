"""Steps and slopes of many series at once: false positives and power."""

import numpy as np
import pytest
from scipy.stats import theilslopes

from benchmarks import drifting
from kernel_matrix.analysis.differences import benjamini_hochberg
from kernel_matrix.analysis.series_changes import find_changes, slopes


def look(values):
    count, nights = values.shape
    return find_changes(values.ravel(), np.arange(count) * nights, np.full(count, nights))


def stepped(rng, count, shift=0.03, nights=20, noise=0.01):
    values = rng.normal(0, noise, (count, nights))
    values[:, nights // 2 :] += np.log1p(shift)
    return values


@pytest.mark.parametrize("nights", [12, 20, 60])
def test_noise_steps_at_most_once_in_a_hundred(nights):
    rng = np.random.default_rng(nights)
    assert len(look(rng.normal(0, 0.01, (1000, nights))).places) <= 1
    alone = [len(look(rng.normal(0, 0.01, (1, nights))).places) > 0 for _ in range(300)]
    assert np.mean(alone) <= 0.022  # 0.01 and two standard errors


def test_a_step_in_all_series_is_found():
    found = look(stepped(np.random.default_rng(2), 1000))
    assert len(set(found.stretches)) >= 950
    assert np.mean(np.abs(found.places % 20 - 10) <= 1) >= 0.9


def test_a_step_in_a_lone_series_is_found():
    dice = np.random.default_rng(3)
    assert np.mean([len(look(stepped(dice, 1, shift=0.07, nights=30)).places) > 0 for _ in range(100)]) >= 0.95


def test_two_steps_are_both_found():
    values = np.random.default_rng(5).normal(0, 0.005, (1, 50))
    values[0, 15:35] += 0.05
    values[0, 35:] += 0.02
    assert sorted(look(values).places) == [15, 35]


def test_what_a_line_explains_better_is_no_step():
    values = np.random.default_rng(9).normal(0, 0.005, (200, 40)) + 0.002 * np.arange(40)
    assert len(look(values).places) <= 2


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


@pytest.mark.parametrize("name", ["t3", "stray", "ar0.9-tenth", "ar0.9-all", "states-0.8-1%"])
def test_pages_without_change_have_no_findings(name):
    found = map(drifting.looked_at, drifting.pages_of(name, 4, np.random.default_rng(3)))
    assert sum(len(steps) + len(slopes) > 0 for steps, slopes, _bounds in found) <= 1


def test_a_step_and_a_slope_among_unchanged_series_are_found():
    row = drifting.measured("normal", 12, np.random.default_rng(4))
    assert row["pages_with_alarms"] <= 1  # before these two are there
    assert row["step_found"] >= 0.9
    assert row["slope_found"] >= 0.9
    assert row["step_held"] >= 0.7


def test_a_larger_step_is_found_beside_series_with_two_states():
    row = drifting.measured("states-0.9-0.3%", 4, np.random.default_rng(5))
    assert row["pages_with_alarms"] <= 1
    assert row["step_found"] >= 0.6


def test_a_step_of_the_size_of_returns_is_masked_and_counted():
    dice = np.random.default_rng(6)
    values = dice.normal(0, 0.003, (100, 40))
    values[:20, 10:25] += 0.03
    values[20, 20:] += 0.03
    found = look(values)
    assert (len(found.places), found.masked, int(found.returning.sum())) == (0, 1, 20)
    values[20, 20:] += 0.03
    found = look(values)
    assert (list(found.stretches), found.masked) == ([20], 0)


def test_a_wandering_series_is_undecided():
    values = np.cumsum(np.random.default_rng(8).normal(0, 0.01, (200, 30)), axis=1)
    found = look(values)
    assert len(found.places) <= 1
    assert found.undecided >= 20
    assert found.noise.correlation > 0.7
