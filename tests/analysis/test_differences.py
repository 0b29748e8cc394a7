"""Differences between sessions: error rates, intervals and power, on simulated pages of 500 cells."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from kernel_matrix.analysis.differences import (
    DEFAULT_RUN_DEVIATION,
    NoiseSource,
    benjamini_hochberg,
    default_deviation,
    noise_classes,
    paired_differences,
    shorth,
    unpaired_differences,
)

Q = 0.01


def sessions_of(base, new):
    """Sessions from two arrays (cells, runs, sessions) of logarithms."""
    sides = []
    for side, logs in enumerate((base, new)):
        row, run, _ = (axis.ravel() for axis in np.indices(logs.shape))
        sides.append(pl.DataFrame({"row": row, "side": np.full(row.size, side), "run": run, "log": logs.ravel()}))
    return pl.concat(sides)


def estimated(base, new, *, mostly_unchanged=True):
    default = pl.DataFrame({"row": np.arange(len(base)), "deviation": np.full(len(base), 0.02)})
    return unpaired_differences(sessions_of(base, new), default, Q, mostly_unchanged=mostly_unchanged)


def two_sides(noise, rng, bases, news):
    """Two sides of unchanged cells."""
    logs = noise(rng, (500, 1, bases + news))
    return logs[:, :, :bases], logs[:, :, bases:]


def flagged(found, margin=0.01):
    sure = benjamini_hochberg(found.p) < Q
    return sure & (np.abs(found.effect) - found.reach[0.90] > np.log1p(margin))


def normal(rng, shape):
    return rng.normal(0, 0.005, shape)


def heavy(rng, shape):
    return rng.standard_t(3, shape) * 0.003


def stray(rng, shape):
    return rng.normal(0, 0.005, shape) + (rng.random(shape) < 0.05) * rng.exponential(0.1, shape)


def two_states(rng, shape):
    states = rng.random((shape[0], 1, 1)) < 0.2
    return rng.normal(0, 0.003, shape) + 0.03 * (states & (rng.random(shape) < 0.5))


def uneven(rng, shape):
    return rng.normal(0, 1, shape) * np.resize([0.003, 0.01, 0.03], shape[0])[:, None, None]


NOISES = [normal, heavy, stray, two_states, uneven]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("bases", "news"), [(5, 5), (3, 3), (2, 2), (3, 8)])
def test_unchanged_pages_raise_no_alarm_and_intervals_cover(noise, bases, news):
    rng = np.random.default_rng(2026)
    pages = [estimated(*two_sides(noise, rng, bases, news)) for _ in range(6)]
    assert sum(flagged(page).any() for page in pages) <= 1
    covered = np.mean([np.abs(page.effect) <= page.reach[0.95] for page in pages])
    assert covered == pytest.approx(0.95, abs=0.025)


@pytest.mark.parametrize("noise", [normal, heavy, two_states])
def test_one_session_a_side_raises_no_alarm(noise):
    rng = np.random.default_rng(2027)
    pages = [estimated(*two_sides(noise, rng, 1, 1)) for _ in range(8)]
    assert sum(flagged(page).any() for page in pages) <= 1
    assert np.mean([np.abs(page.effect) <= page.reach[0.95] for page in pages]) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(("runs", "deviation"), [(3, 0.003), (3, 0.01), (8, 0.005)])
def test_noise_between_runs_is_found_in_the_runs(runs, deviation):
    rng = np.random.default_rng(2028)
    effects = rng.normal(0, deviation, (2000, runs + 1, 1))
    logs = normal(rng, (2000, runs + 1, 5)) + effects
    found = estimated(logs[:, :runs], logs[:, runs:])
    assert (found.run_source, found.run_deviation) == (NoiseSource.RUNS, pytest.approx(deviation, rel=0.1))
    assert (np.abs(found.effect) <= found.reach[0.95]).mean() == pytest.approx(0.95, abs=0.02)


def test_noise_between_runs_is_found_in_the_page():
    rng = np.random.default_rng(2029)
    base, new = (normal(rng, (1000, 1, 5)) + rng.normal(0, 0.004, (1000, 1, 1)) for _ in range(2))
    new[:100] += 0.05
    found = estimated(base, new + 0.01)
    assert (found.run_source, found.run_deviation) == (NoiseSource.PAGE, pytest.approx(0.004, rel=0.2))
    assert flagged(found)[:100].mean() > 0.9
    unknown = estimated(base, new, mostly_unchanged=False)
    assert (unknown.run_source, unknown.run_deviation) == (NoiseSource.DEFAULT, DEFAULT_RUN_DEVIATION)


def test_single_sessions_of_many_runs_are_independent():
    rng = np.random.default_rng(2030)
    found = estimated(normal(rng, (500, 6, 1)), normal(rng, (500, 2, 1)))
    assert (found.run_source, found.run_deviation) == (NoiseSource.RUNS, 0.0)
    assert np.median(found.error) == pytest.approx(0.005 * np.sqrt(1 / 6 + 1 / 2), rel=0.05)


def test_two_percent_is_found_with_five_sessions():
    rng = np.random.default_rng(2031)
    hits, smallest = [], []
    for _ in range(40):
        new = normal(rng, (500, 1, 5))
        new[0] += np.log(1.02)
        found = estimated(normal(rng, (500, 1, 5)), new)
        hits.append(flagged(found)[0])
        smallest.append(np.median(found.smallest(0.01)))
    assert sum(hits) >= 32  # 9 of 10 are expected
    assert np.expm1(np.median(smallest)) == pytest.approx(0.0195, rel=0.05)


def test_thirty_percent_is_found_with_one_session_a_side():
    rng = np.random.default_rng(2032)
    hits = []
    for _ in range(20):
        base, new = (rng.normal(0, 0.01, (500, 1, 1)) for _ in range(2))
        new[0] += np.log(1.3)
        hits.append(flagged(estimated(base, new))[0])
    assert sum(hits) >= 19


def test_smallest_change_is_found_nine_times_of_ten():
    rng = np.random.default_rng(2033)
    base, new = (normal(rng, (4000, 1, 3)) for _ in range(2))
    smallest = np.median(estimated(base, new).smallest(0.01))
    new[:40] += smallest
    assert flagged(estimated(base, new))[:40].mean() >= 0.8


def test_pairs_are_judged_by_their_differences():
    rng = np.random.default_rng(2034)
    logs = rng.normal(0, 0.002, (300, 5))
    logs[0] += 0.02
    pairs = pl.DataFrame({"row": np.repeat(np.arange(300), 5), "log": logs.ravel()})
    found = paired_differences(pairs, Q)
    assert flagged(found).nonzero()[0].tolist() == [0]
    assert (np.abs(found.effect[1:]) <= found.reach[0.95][1:]).mean() == pytest.approx(0.95, abs=0.03)
    assert found.run_source is NoiseSource.TURNS


def test_few_pairs_are_students():
    logs = np.random.default_rng(2035).normal(0.01, 0.01, (3, 5))
    found = paired_differences(pl.DataFrame({"row": np.repeat(np.arange(3), 5), "log": logs.ravel()}), Q)
    assert found.p == pytest.approx(stats.ttest_1samp(logs, 0, axis=1).pvalue)


def test_one_cell_with_one_session_a_side_is_judged_by_defaults():
    found = estimated(np.zeros((1, 1, 1)), np.full((1, 1, 1), np.log(12.0)))
    assert flagged(found).all()
    assert not flagged(estimated(np.zeros((1, 1, 1)), np.full((1, 1, 1), np.log(1.05)))).any()


def test_equal_sessions_are_no_infinite_evidence():
    found = estimated(np.zeros((30, 1, 3)), np.zeros((30, 1, 3)))
    assert not found.effect.any()
    assert (found.error > 0).all()
    assert (found.p == 1).all()


def test_p_values_are_adjusted_as_scipy_does():
    p = np.random.default_rng(1).uniform(0, 1, 300) ** 3
    assert benjamini_hochberg(p) == pytest.approx(stats.false_discovery_control(p))
    assert benjamini_hochberg(p[:0]).size == 0


def test_shorth_is_the_middle_of_the_majority():
    assert shorth(np.array([0.0, 0.1, 0.2, 5.0, 6.0])) == pytest.approx(0.1)
    assert shorth(np.array([3.0])) == 3.0


def test_default_deviation_falls_with_the_size_of_the_call():
    assert default_deviation(np.array([2e3, 5e4, 1e6])).tolist() == [0.05, 0.03, 0.02]
    assert default_deviation(np.array([2e3, 1e6]), shared=np.array([False, True])).tolist() == [0.05, 0.06]


@pytest.mark.parametrize(
    ("numbers", "classes"),
    [
        ({0.02: 100, 0.03: 100, 0.05: 100}, [100, 100, 100]),
        ({0.02: 100, 0.03: 10, 0.05: 100}, [110, 100]),
        ({0.02: 10, 0.03: 100, 0.05: 10}, [120]),
        ({0.02: 3}, [3]),
        ({}, []),
    ],
)
def test_classes_of_few_cells_are_joined(numbers, classes):
    deviations = [deviation for deviation, count in numbers.items() for _ in range(count)]
    rows = {"row": list(range(len(deviations))), "deviation": deviations[::-1]}
    found = noise_classes(pl.DataFrame(rows, schema={"row": pl.UInt32, "deviation": pl.Float64}))
    assert [one.height for one in found] == classes
    assert sorted(row for one in found for row in one["row"]) == rows["row"]
