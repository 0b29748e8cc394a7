"""Joules of a call, the ratio of two sides, and its interval over sessions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernel_matrix.measure.energy import energy_ratio, joules_per_call, over_sessions
from kernel_matrix.measure.intervals import Interval


def reading(contestant="candidate", energy_mj=450_000, calls=10_000, **changes):
    """A second of calls; the counter moved for 0.89 to 0.91 of it."""
    times = {"started_ns": 5, "ended_ns": 10**9 + 5, "shortest_ns": 890_000_000, "longest_ns": 910_000_000}
    return {"contestant": contestant, "energy_mj": energy_mj, "calls": calls, **times, **changes}


def test_joules_are_power_times_the_time_of_a_call():
    found = joules_per_call({"energies": [reading()]}, "candidate")
    assert found.estimate == pytest.approx(450 / 0.9 / 10_000)
    assert (found.low, found.high) == pytest.approx((450 / 0.91 / 10_000, 450 / 0.89 / 10_000))


def test_readings_of_a_session_are_averaged_and_discarded_ones_left_out():
    workload = {"energies": [reading(), reading(energy_mj=900_000), reading(energy_mj=1, discarded="contended: pid 7")]}
    assert joules_per_call(workload, "candidate").estimate == pytest.approx(675 / 0.9 / 10_000)
    assert joules_per_call(workload, "eager") is None
    assert joules_per_call({}, "candidate") is None
    assert energy_ratio(workload) is None


def test_the_ratio_is_above_one_where_the_candidate_takes_less():
    found = energy_ratio({"energies": [reading(), reading("eager", 900_000)]})
    assert found.estimate == pytest.approx(2)
    assert (found.low, found.high) == pytest.approx((2 * 0.89 / 0.91, 2 * 0.91 / 0.89))


def test_no_energy_at_all_has_no_ratio():
    assert energy_ratio({"energies": [reading(energy_mj=0), reading("eager")]}) is None


def test_one_session_has_no_interval():
    found = over_sessions([Interval(2.0, 1.9, 2.1)])
    assert (found.estimate, found.low, found.high) == (2.0, 0.0, math.inf)


def test_sessions_that_agree_still_have_the_bounds_of_the_counter():
    found = over_sessions([Interval(2.0, 1.9, 2.1)] * 4)
    assert (found.estimate, found.low, found.high) == pytest.approx((2.0, 1.9, 2.1))


def test_the_interval_covers_the_truth_at_least_as_often_as_it_says():
    generator = np.random.default_rng(3)
    held = 0
    for _ in range(2000):
        bias = math.exp(generator.uniform(-0.01, 0.01))  # what the counter's steps may hide
        ratios = [2 * bias * math.exp(generator.normal(scale=0.01)) for _ in range(4)]
        found = over_sessions([Interval(ratio, ratio / 1.01, ratio * 1.01) for ratio in ratios])
        held += found.low <= 2 <= found.high
    assert held / 2000 > 0.95
