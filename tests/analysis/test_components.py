"""Components of variance, against another implementation on balanced data, and by simulation."""

import numpy as np
import polars as pl
import pytest
from scipy.stats import chi2

from kernel_matrix.analysis.components import difference_interval, interval_degrees, moments_of, solve, sums_of_squares
from kernel_matrix.analysis.timed_sessions import ONCE as NESTED
from kernel_matrix.analysis.timed_sessions import RECURRING

DEVIATIONS = np.array([0.01, 0.008, 0.006, 0.004])


def nested(rng, sets, shape, deviations=DEVIATIONS):
    """Values of shape (sets, nights, hosts, units, sessions), a random effect at each level."""
    values = np.full((sets, *shape), 11.0)
    for level in range(4):
        effect = rng.normal(0, deviations[level], (sets, *shape[: level + 1]))
        values += effect.reshape(effect.shape + (1,) * (4 - effect.ndim + 1))
    return values


def groups_of(values, kept=None):
    """Moments of the finest groups; ``kept`` is a mask of sessions, to unbalance them."""
    mask = np.ones(values.shape, dtype=bool) if kept is None else kept
    n = mask.sum(-1)
    mean = np.where(mask, values, 0).sum(-1) / np.maximum(n, 1)
    within = np.where(mask, (values - mean[..., None]) ** 2, 0).sum(-1)
    cell, night, host, unit = (index.ravel() for index in np.indices(n.shape))
    columns = {"cell": cell, "night": night, "host": night * 100 + host, "unit": unit}
    table = pl.DataFrame(columns | {"n": n.ravel(), "mean": mean.ravel(), "within": within.ravel()})
    return table.filter(pl.col("n") > 0)


def solved(groups, chain=NESTED):
    table = sums_of_squares(groups, ["cell"], chain).sort("cell")
    return solve(moments_of(table), interval_degrees(table))


def test_balanced_components_are_those_of_a_mixed_model():
    smf = pytest.importorskip("statsmodels.formula.api")
    values = nested(np.random.default_rng(5), 1, (8, 1, 4, 3), (0.02, 0.0, 0.015, 0.01))
    _, night, _, unit, _ = (index.ravel() for index in np.indices(values.shape))
    pandas = pytest.importorskip("pandas")
    columns = pandas.DataFrame({"y": (values.ravel() - 11) * 100, "night": night, "unit": unit})
    model = smf.mixedlm("y ~ 1", columns, groups=columns["night"], vc_formula={"unit": "0 + C(unit)"}, re_formula="1")
    fitted = model.fit(reml=True, method="powell")
    found = solved(groups_of(values)).raw[0] * 1e4
    assert np.isnan(found[1])  # one host a night
    wanted = (float(np.asarray(fitted.cov_re)[0, 0]), float(fitted.vcomp[0]), float(fitted.scale))
    assert (found[0], found[2], found[3]) == pytest.approx(wanted, rel=2e-3)


@pytest.mark.parametrize("unbalanced", [False, True])
def test_nested_components_are_unbiased_and_covered(unbalanced):
    rng = np.random.default_rng(11)
    values = nested(rng, 1500, (6, 3, 3, 4))
    kept = rng.random(values.shape) < 0.75 if unbalanced else None
    found = solved(groups_of(values, kept))
    truth = DEVIATIONS**2
    assert found.raw.mean(axis=0) / truth == pytest.approx(np.ones(4), abs=0.06)
    covered = ((found.low <= truth) & (truth <= found.high)).mean(axis=0)
    assert covered.min() >= 0.92
    assert covered.max() <= 0.98


def test_nights_that_units_share_are_told_from_units():
    rng = np.random.default_rng(12)
    sets, nights, units, sessions = 1500, 8, 5, 3
    values = (
        rng.normal(0, 0.01, (sets, nights, 1, 1, 1))
        + rng.normal(0, 0.01, (sets, 1, 1, units, 1))
        + rng.normal(0, 0.005, (sets, nights, 1, units, sessions))
    )
    groups = groups_of(values).with_columns(host=pl.lit(1))
    found = solved(groups, RECURRING)
    assert np.isnan(found.raw[:, 0]).all()  # one host
    truth = np.array([0.01, 0.01, 0.005]) ** 2
    assert found.raw[:, 1:].mean(axis=0) / truth == pytest.approx(np.ones(3), abs=0.06)
    covered = ((found.low[:, 1:] <= truth) & (truth <= found.high[:, 1:])).mean(axis=0)
    assert covered.min() >= 0.92


def test_what_cannot_be_told_is_not_a_number():
    one = pl.DataFrame(
        {"cell": [0, 1], "night": [0, 0], "host": [0, 0], "unit": [0, 0], "n": [1, 3], "mean": [1.0, 1.0]}
    ).with_columns(within=pl.Series([0.0, 0.02]))
    found = solved(one)
    assert np.isnan(found.raw[0]).all()
    assert np.isnan(found.raw[1, :3]).all()
    assert found.raw[1, 3] == pytest.approx(0.01)


def test_negative_estimates_stay_negative_until_reported():
    values = np.zeros((1, 2, 1, 1, 2))
    values[0, :, 0, 0] = [[-1.0, 1.0], [-1.0, 1.0]]  # equal nights, unequal sessions
    found = solved(groups_of(values))
    assert found.raw[0, 0] == pytest.approx(-1.0)
    assert found.low[0, 0] == 0.0


def test_interval_without_subtraction_is_chi_square():
    low, high = difference_interval(np.array([2.0]), np.array([7.0]), np.array([0.0]), np.array([1.0]))
    assert (low[0], high[0]) == pytest.approx((2.0 * 7 / chi2.ppf(0.975, 7), 2.0 * 7 / chi2.ppf(0.025, 7)))


def test_half_the_difference_between_two_variances_is_covered():
    rng = np.random.default_rng(13)
    plus, minus = 3.0 * rng.chisquare(6, 4000) / 6, 1.0 * rng.chisquare(12, 4000) / 12
    low, high = difference_interval(plus, np.full(4000, 6.0), minus, np.full(4000, 12.0))
    assert ((low <= 2.0) & (high >= 2.0)).mean() == pytest.approx(0.95, abs=0.012)
