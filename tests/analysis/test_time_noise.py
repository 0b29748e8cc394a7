"""Standard errors of times: from the cell, from other cells, from runs, and unknown."""

import numpy as np
import polars as pl
import pytest

from kernel_matrix.analysis.time_noise import RunNoise, run_noise, standard_errors

NO_RUNS = RunNoise(variance=0.0, degrees=0.0)


def cells(logs, gpu="x", runs=1, size=0):
    """Moments of cells; ``logs`` has the shape (cells, sessions)."""
    squares = ((logs - logs.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    columns = {
        "gpu": gpu,
        "size": size,
        "sessions": logs.shape[1],
        "runs": runs,
        "squares": squares,
        "squares_within": squares,
    }
    return pl.DataFrame(columns)


def drawn(noise, sessions, count=400, seed=1):
    return np.random.default_rng(seed).normal(0, noise, (count, sessions))


def test_two_sessions_in_many_cells_share_their_noise():
    error, degrees = standard_errors(cells(drawn(0.01, 2)), NO_RUNS)
    assert error.median() == pytest.approx(0.01 / np.sqrt(2), rel=0.1)
    assert degrees.median() > 100


def test_noise_of_each_gpu_is_its_own():
    both = pl.concat([cells(drawn(0.01, 3)), cells(drawn(0.03, 3, seed=2), gpu="y")])
    error, _ = standard_errors(both, NO_RUNS)
    assert error.head(400).median() == pytest.approx(0.01 / np.sqrt(3), rel=0.1)
    assert error.tail(400).median() == pytest.approx(0.03 / np.sqrt(3), rel=0.1)


def test_noise_of_each_size_of_call_is_its_own():
    both = pl.concat([cells(drawn(0.01, 3)), cells(drawn(0.03, 3, seed=2), size=2)])
    error, _ = standard_errors(both, NO_RUNS)
    assert error.head(400).median() == pytest.approx(0.01 / np.sqrt(3), rel=0.1)
    assert error.tail(400).median() == pytest.approx(0.03 / np.sqrt(3), rel=0.1)


def test_few_cells_of_a_size_have_the_noise_of_their_gpu():
    few = cells(drawn(0.01, 2, count=5, seed=2), size=1)
    error, degrees = standard_errors(pl.concat([cells(drawn(0.01, 2)), few]), NO_RUNS)
    assert error.tail(5).to_numpy() == pytest.approx(np.full(5, 0.01 / np.sqrt(2)), rel=0.1)
    assert degrees.tail(5).min() > 100


@pytest.mark.parametrize(("sessions", "known"), [(1, False), (2, False), (3, True)])
def test_few_cells_need_three_sessions(sessions, known):
    logs = drawn(0.01, sessions, count=4)
    error, degrees = standard_errors(cells(logs), NO_RUNS)
    assert error.null_count() == degrees.null_count() == (0 if known else 4)
    if known:
        assert error.to_numpy() == pytest.approx(logs.std(axis=1, ddof=1) / np.sqrt(3))


def runs(deviation, noise, sessions, count=300, each=5):
    """Runs of what was measured in several."""
    dice = np.random.default_rng(3)
    logs = dice.normal(0, deviation, (count, each, 1)) + dice.normal(0, noise, (count, each, sessions))
    mean = logs.mean(axis=2)
    squares = ((logs - mean[..., None]) ** 2).sum(axis=2)
    row = np.repeat(np.arange(count), each)
    return pl.DataFrame({"row": row, "n": sessions, "mean": mean.ravel(), "squares": squares.ravel()})


@pytest.mark.parametrize("deviation", [0.0, 0.005, 0.01])
def test_noise_between_runs_is_found(deviation):
    found = run_noise(runs(deviation, 0.003, 4))
    assert found.known
    assert np.sqrt(found.variance) == pytest.approx(deviation, abs=0.0007)


def test_noise_between_runs_of_one_session_is_all_noise():
    found = run_noise(runs(0.006, 0.008, 1))
    assert np.sqrt(found.variance) == pytest.approx(0.01, rel=0.1)
    error, _ = standard_errors(cells(drawn(0.01, 1)), found)
    assert error.to_numpy() == pytest.approx(np.full(400, 0.01), rel=0.1)


def test_copied_means_show_no_noise_between_runs():
    copied = runs(0.0, 0.003, 4).with_columns(mean=pl.lit(4.0))
    assert not run_noise(copied).known


def test_noise_between_runs_widens_the_error():
    noise = run_noise(runs(0.01, 0.003, 4))
    error, _ = standard_errors(cells(drawn(0.003, 4)), noise)
    assert error.median() == pytest.approx(np.hypot(0.01, 0.003 / 2), rel=0.1)
