"""Variances that are drawn towards the common one."""

import numpy as np
import pytest

from kernel_matrix.analysis.variance_prior import FEWEST_CELLS, VariancePrior, fit_prior


def test_the_common_variance_is_found_again():
    rng = np.random.default_rng(3)
    worth, common = 10.0, 4e-6  # the model of Smyth 2004: 1 / σ² is χ² / (worth × common)
    truth = worth * common / rng.chisquare(worth, 20_000)
    own = (rng.normal(0, 1, (20_000, 5)) * np.sqrt(truth)[:, None]).var(axis=1, ddof=1)
    prior = fit_prior(own, np.full(20_000, 4.0))
    # The largest variances are left out as outliers, so that the others look a little more alike.
    assert (prior.variance, prior.degrees) == (pytest.approx(common, rel=0.03), pytest.approx(worth, rel=0.3))
    variance, degrees = prior.shrink(own, np.full(20_000, 4.0))
    assert np.median(variance / ((4 * own + worth * common) / (4 + worth))) == pytest.approx(1, abs=0.02)
    error, own_error = (np.mean(np.log(found / truth) ** 2) for found in (variance, own))
    assert error < 0.5 * own_error
    assert np.median(degrees) == pytest.approx(4 + prior.degrees)


def test_cells_that_are_alike_share_one_variance():
    own = np.random.default_rng(4).normal(0, 0.01, (500, 5)).var(axis=1, ddof=1)
    prior = fit_prior(own, np.full(500, 4.0))
    variance, degrees = prior.shrink(own, np.full(500, 4.0))
    assert np.median(variance) == pytest.approx(1e-4, rel=0.1)
    assert degrees.max() <= 2000  # as many as all cells have together


def test_much_noisier_cell_keeps_its_own_variance():
    prior = VariancePrior(variance=1e-6, degrees=20.0)
    variance, degrees = prior.shrink(np.array([1e-6, 1e-3]), np.array([4.0, 4.0]))
    assert (variance[1], degrees[1]) == (1e-3, 4.0)
    assert (variance[0], degrees[0]) == (pytest.approx(1e-6), 24.0)


def test_cell_without_degrees_gets_the_common_variance():
    prior = VariancePrior(variance=1e-6, degrees=20.0)
    assert [values.tolist() for values in prior.shrink(np.zeros(1), np.zeros(1))] == [[1e-6], [20.0]]


def test_few_cells_have_no_prior():
    assert fit_prior(np.full(FEWEST_CELLS - 1, 1e-6), np.full(FEWEST_CELLS - 1, 4.0)) is None
    assert fit_prior(np.full(40, 1e-6), np.zeros(40)) is None
