"""Geometric means over problems, against the function for one list and against numbers worked by hand."""

import numpy as np
import pytest

from kernel_matrix.analysis.mean_ratios import MEANS, LogRatios, mean_ratios
from kernel_matrix.measure.intervals import log_interval


def ratios(values, *, cell=None, problem=None, weight=None, variance=0.0):
    count = len(values)
    numbers = np.arange(count)
    return LogRatios(
        log=np.log(values),
        variance=np.full(count, variance),
        cell=numbers if cell is None else np.array(cell),
        problem=numbers if problem is None else np.array(problem),
        weight=np.ones(count) if weight is None else np.array(weight, dtype=float),
    )


def one(made):
    return mean_ratios(made, np.zeros(made.log.size, np.intp)).row(0, named=True)


def test_mean_ratios_equal_log_interval_over_problems():
    values = [1.25, 1.6, 0.9, 1.1, 2.0]
    expected = log_interval(values)
    found = one(ratios(values))
    assert [found[name] for name in ("ratio", "low", "high")] == pytest.approx(
        [expected.estimate, expected.low, expected.high]
    )
    assert (found["problems"], found["workloads"]) == (5, 5)


def test_mean_ratios_average_workloads_then_cells_then_problems():
    # Problem 0: cell 0 has 2 and 8, so 4; cell 1 has 1; together 2. Problem 1: 0.5. Over both: 1.
    found = one(ratios([2.0, 8.0, 1.0, 0.5], cell=[0, 0, 1, 2], problem=[0, 0, 0, 1]))
    assert found["ratio"] == pytest.approx(1.0)
    assert (found["problems"], found["workloads"]) == (2, 4)


def test_mean_ratios_weight_counts_as_repeated_problem():
    weighted = one(ratios([2.0, 8.0, 4.0], weight=[2, 1, 0]))
    assert weighted["ratio"] == pytest.approx((2 * 2 * 8) ** (1 / 3))
    assert weighted["problems"] == 2
    assert 0 < weighted["low"] < weighted["ratio"] < weighted["high"]


def test_mean_ratios_of_one_problem_have_no_interval():
    found = one(ratios([1.5], variance=1e-4))
    assert (found["low"], found["high"]) == (None, None)
    assert found["noise"] == pytest.approx(np.expm1(1.959964 * 0.01), rel=1e-5)


@pytest.mark.parametrize("problems", [2, 5, 30])
@pytest.mark.parametrize("spread", [0.0, 0.05])
@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 3.0)])
def test_mean_ratios_interval_covers_the_truth(problems, spread, heavy, weights):
    pages, noise = 4000, 0.02
    dice = np.random.default_rng(problems)
    shape = (pages, problems)
    errors = dice.standard_t(3, shape) / np.sqrt(3) if heavy else dice.standard_normal(shape)
    logs = 0.3 + spread * dice.standard_normal(shape) + noise * errors
    number = np.arange(logs.size)
    found = mean_ratios(
        LogRatios(
            log=logs.ravel(),
            variance=np.full(logs.size, noise**2),
            cell=number,
            problem=number,
            weight=np.tile(np.resize(weights, problems), pages),
        ),
        number // problems,
    )
    covered = ((found["low"].log() <= 0.3) & (found["high"].log() >= 0.3)).mean()
    assert 0.93 <= covered <= (0.985 if heavy else 0.975)


def test_mean_ratios_of_equal_ratios_have_the_noise_as_interval():
    found = one(ratios([1.5, 1.5, 1.5, 1.5], variance=0.04))
    assert found["high"] / found["ratio"] == pytest.approx(np.exp(1.959964 * 0.2 / 2))


def test_mean_ratios_leave_out_rows_of_no_slice():
    found = mean_ratios(ratios([2.0, 3.0, 5.0]), np.array([2, -1, 0]))
    assert found["slice"].to_list() == [0, 2]
    assert found["ratio"].to_list() == pytest.approx([5.0, 2.0])


def test_mean_ratios_without_weight_are_empty():
    found = mean_ratios(ratios([2.0], weight=[0]), np.zeros(1, np.intp))
    assert (found.height, dict(found.schema)) == (0, MEANS)
