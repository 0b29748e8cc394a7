"""Agreement with a repetition: of pairs, of winners, and the test for any difference."""

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm, t

from kernel_matrix.analysis.repetitions import differences, normal_size, repeated_agreement, repeated_winners

MANY = 40_000


@pytest.mark.parametrize("apart", [0.0, 0.5, 1.0, 2.0, 4.0])
def test_agreement_of_pairs_is_that_of_repetitions(apart):
    size = np.abs(apart + np.random.default_rng(1).standard_normal(MANY))
    assert repeated_agreement(size).mean() == pytest.approx((2 * ndtr(apart) - 1) ** 2, abs=0.06)


def test_agreement_of_unknown_noise_is_unknown():
    assert np.isnan(repeated_agreement(np.array([np.nan]))).all()


@pytest.mark.parametrize("degrees", [4.0, 30.0, 1e9, np.inf])
def test_normal_size_is_as_unlikely_as_t(degrees):
    statistic = t.isf(0.01, min(degrees, 1e9))
    assert normal_size(np.array([statistic]), np.array([degrees])) == pytest.approx(norm.isf(0.01), rel=0.02)


def groups(truth, noise, count=500):
    dice = np.random.default_rng(2)
    log_ns = (np.asarray(truth) + noise * dice.standard_normal((count, len(truth)))).ravel()
    group = np.repeat(np.arange(count), len(truth))
    return log_ns, np.full(log_ns.size, noise**2), group


@pytest.mark.parametrize(("truth", "wanted"), [(np.zeros(10), 0.1), (np.arange(10.0), 1.0)])
def test_winners_of_repetitions_are_as_likely_as_chance(truth, wanted):
    log_ns, variance, group = groups(truth, 0.01)
    start = np.flatnonzero(np.diff(group, prepend=-1))
    assert repeated_winners(log_ns[None], variance[None], start, group).mean() == pytest.approx(wanted, abs=0.03)
    variance[0] = np.nan
    assert np.isnan(repeated_winners(log_ns[None], variance[None], start, group)).sum() == 1


@pytest.mark.parametrize(("truth", "shown"), [(np.zeros(5), False), (np.array([0.0, 0.04, 0.0, 0.0, 0.0]), True)])
def test_differences_beyond_noise_are_shown(truth, shown):
    log_ns, variance, group = groups(truth, 0.01, count=20)
    found = differences(log_ns, variance, np.full(log_ns.size, 40.0), group)
    assert found.shown(np.arange(20)) == shown
    unknown = differences(log_ns, np.full(log_ns.size, np.nan), np.full(log_ns.size, np.nan), group)
    assert not unknown.tested(np.arange(20))
