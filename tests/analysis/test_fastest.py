"""The fastest of noisy candidates: no noise, equal candidates, and the errors of distances."""

import numpy as np
import pytest

from kernel_matrix.analysis.fastest import CHOSEN, LEAST, SURE, NoisyTimes, fastest

MANY = 4000


def found(truth, noise, share=CHOSEN, seed=1):
    """The fastest of many groups, one with the times ``truth`` plus ``noise`` each; also returns the times."""
    dice = np.random.default_rng(seed)
    times = np.asarray(truth) + noise * dice.standard_normal((MANY, len(truth)))
    variance = np.broadcast_to(np.square(noise, dtype=float), times.shape)
    group = np.repeat(np.arange(MANY), len(truth))
    return fastest(NoisyTimes(times.ravel(), variance.ravel(), np.full(times.size, 1e6)), group, share), times


def test_fastest_without_known_noise_is_the_least():
    log_ns, unknown = np.array([3.0, 1.0, np.nan, 2.0, 5.0, 5.0]), np.full(6, np.nan)
    answer = fastest(NoisyTimes(log_ns, unknown, unknown), np.array([0, 0, 1, 2, 3, 3]))
    assert answer.best == pytest.approx([1.0, np.nan, 2.0, 5.0], nan_ok=True)
    assert answer.behind == pytest.approx([2.0, -2.0, np.nan, np.nan, 0.0, 0.0], nan_ok=True)
    assert np.isnan(answer.variance).all()


def test_fastest_of_nothing_is_empty():
    nothing = np.empty(0)
    assert fastest(NoisyTimes(nothing, nothing, nothing), np.empty(0, np.int64)).best.size == 0


@pytest.mark.parametrize("count", [2, 5, 20, 40])
def test_best_of_equal_candidates_is_not_too_low(count):
    answer, times = found(np.zeros(count), 0.01)
    assert times.min(axis=1).mean() < -0.005
    assert abs(answer.best.mean()) < 0.001


@pytest.mark.parametrize("truth", [[0.0, 0.2, 0.4], [0.3, 0.0, 0.9]])
def test_best_of_candidates_far_apart_is_the_least(truth):
    answer, times = found(truth, 0.01)
    assert answer.best == pytest.approx(times.min(axis=1))
    assert answer.variance.reshape(times.shape) == pytest.approx(np.full(times.shape, 2e-4), rel=1e-4)


@pytest.mark.parametrize(
    "truth", [np.zeros(2), np.zeros(20), np.random.default_rng(5).normal(0, 0.01, 20), 0.2 * np.arange(5)]
)
def test_distances_hold_their_error(truth):
    answer, times = found(truth, 0.01, LEAST)
    behind, error = answer.behind.reshape(times.shape), np.sqrt(answer.variance.reshape(times.shape))
    sure = behind < -SURE * error
    low, high = (np.where(sure, 0.0, np.maximum(behind + sign * 1.96 * error, 0.0)) for sign in (-1, 1))
    wanted = truth - truth.min()
    assert 0.92 < np.mean((low <= wanted + 1e-9) & (wanted <= high + 1e-9)) < 0.99


def test_much_noisier_candidate_makes_distances_doubtful():
    steady, _ = found([0.0, 0.0, 0.0], 0.001)
    noisy, _ = found([0.0, 0.0, 0.0], np.array([0.001, 0.001, 0.05]))
    assert steady.doubtful.mean() < 0.01
    assert noisy.doubtful.reshape(-1, 3)[:, :2].mean() > 0.3


def test_distance_of_one_candidate_is_that_among_all():
    dice = np.random.default_rng(4)
    log_ns, group = dice.normal(0, 0.01, 200 * 40), np.repeat(np.arange(200), 40)
    log_ns[dice.random(log_ns.size) < 0.1] = np.nan
    times = NoisyTimes(log_ns, np.full(log_ns.size, 1e-4), np.full(log_ns.size, 30.0))
    some = np.arange(200) * 40 + dice.integers(0, 40, 200)
    all_of_them = fastest(times, group)
    found = fastest(times, group, of=some, order=np.lexsort((log_ns, group)))
    assert found.best == pytest.approx(all_of_them.best)
    for name in ("behind", "variance", "degrees"):
        wanted = getattr(all_of_them, name)[some]
        assert getattr(found, name)[some] == pytest.approx(wanted, nan_ok=True)
        assert np.isnan(wanted).sum() < 40
