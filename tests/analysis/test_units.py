"""Boards of one model against each other."""

import numpy as np
import polars as pl
import pytest

from kernel_matrix.analysis.units import variance_between
from tests.analysis.noisy import answers, measured


def test_slow_unit_is_named_and_equal_units_are_not():
    rng = np.random.default_rng(5)
    rows = [
        row
        for number in range(30)
        for unit, effect in (("GPU-a", 0.0), ("GPU-b", 0.0), ("GPU-slow", 0.05))
        for row in measured(rng, unit_effect=effect, candidate=f"softmax/{number}", gpu_uuid=unit)
    ]
    found = answers(rows)
    row = found["heterogeneity"].table.filter(pl.col("of") == "time").row(0, named=True)
    assert (row["worst_unit"], row["units"], row["cells"]) == ("GPU-slow", 3, 30)
    assert row["worst_percent"] == pytest.approx(100 * 0.05 * 2 / 3, rel=0.15)
    assert row["i_squared"] > 0.9
    assert row["tau_low_percent"] < 100 * 0.05 / np.sqrt(3) < row["tau_high_percent"]
    slow = found["units"].table.filter((pl.col("unit") == "GPU-slow") & (pl.col("of") == "time")).row(0, named=True)
    assert slow["low_percent"] > 2
    one = answers([row for row in rows if row["gpu_uuid"] == "GPU-a"])
    assert one["heterogeneity"].table.is_empty()
    assert "two units" in one["heterogeneity"].notes[0]


def test_between_is_dersimonian_and_laird_and_is_covered():
    effects, variances = np.array([0.1, 0.3, 0.35, 0.65]), np.array([0.003, 0.03, 0.005, 0.01])
    weights = 1 / variances
    q = (weights * (effects - np.average(effects, weights=weights)) ** 2).sum()
    wanted = (q - 3) / (weights.sum() - (weights**2).sum() / weights.sum())
    tau, low, high, share = variance_between(effects, variances, 1e9)
    assert (tau, share) == pytest.approx((wanted, (q - 3) / q))
    assert low < tau < high
    rng = np.random.default_rng(6)
    covered = 0
    for _ in range(600):
        made = rng.normal(0, 0.02, 6) + rng.normal(0, 0.01, 6)
        _, low, high, _ = variance_between(made, np.full(6, 0.01**2 * rng.chisquare(30) / 30), 30)
        covered += low <= 0.02**2 <= high
    assert covered / 600 == pytest.approx(0.95, abs=0.025)
