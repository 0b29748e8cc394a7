"""Joules of a call, the ratio of two sides, and its interval over sessions."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_matrix.measure.energy import energy_ratio, joules_per_call
from kernel_matrix.measure.intervals import log_interval


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


def counted(generator, watts, period_ns=100_000_000, reads_ns=15_000_000):
    """A reading of a second of calls that take 10 µs, by a counter that is read now and then and moves in steps."""
    changes = np.arange(generator.uniform(0, period_ns), 10**9, period_ns)
    reads = np.arange(generator.uniform(0, reads_ns), 10**9, reads_ns)
    seen = [(reads[place - 1], reads[place]) for place in np.searchsorted(reads, changes) if 0 < place < reads.size]
    (first_early, first_late), (last_early, last_late) = seen[0], seen[-1]
    joules = watts * (len(seen) - 1) * period_ns / 1e9
    times = {"ended_ns": 10**9 + 5, "shortest_ns": last_early - first_late, "longest_ns": last_late - first_early}
    return reading(energy_mj=joules * 1000, calls=100_000, **times)


def test_bounds_hold_the_truth_and_intervals_of_sessions_cover_it():
    generator = np.random.default_rng(3)
    covered, held, sets = 0, 0, 1000
    for _ in range(sets):
        found = [
            joules_per_call({"energies": [counted(generator, 500 * generator.lognormal(0, noise))]}, "candidate")
            for noise in (0.0, *[0.002] * 4)
        ]
        held += found[0].low <= 500e-5 <= found[0].high
        over_sessions = log_interval([one.estimate for one in found[1:]])
        covered += over_sessions.low <= 500e-5 <= over_sessions.high
    assert held == sets
    assert 0.93 <= covered / sets <= 0.97
