"""Boards of one model against each other."""

import numpy as np
import polars as pl
import pytest

from kernel_matrix.analysis.timed_sessions import measured_in
from kernel_matrix.analysis.units import between_units, compare_units, variance_between
from tests.analysis.made import cells as table_of
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


def simulated(dice, *, units=3, nights=6, cells=20, night=0.01, common=0.0):
    """Rows of units that differ by nothing, whose cells move together in a night on a unit."""
    moved = dice.normal(0, night, (units, nights))
    shared = dice.normal(0, common, nights)
    return [
        row
        for unit in range(units)
        for at in range(nights)
        for number in range(cells)
        for row in measured(
            dice,
            sessions=1,
            unit_effect=moved[unit, at] + shared[at],
            candidate=f"softmax/{number}",
            gpu_uuid=f"GPU-{unit}",
            night=at,
        )
    ]


def bounds(rows):
    """The answer ``units`` about times, asked alone: ``variance`` computes much that is not looked at here."""
    _models, boards = between_units(measured_in(table_of(rows), ()))
    return boards.table.filter(pl.col("of") == "time")


@pytest.mark.parametrize("options", [{"night": 0.01}, {"night": 0.003, "common": 0.02}, {"units": 2, "nights": 8}])
def test_bounds_of_units_hold_where_nights_differ(options):
    dice = np.random.default_rng(8)
    held = []
    for _ in range(40):
        table = bounds(simulated(dice, cells=6, **options))
        held += [low <= 0 <= high for low, high in table.select("low_percent", "high_percent").rows()]
        assert set(table["bounds_from"]) == {"its nights"}
    assert np.mean(held) == pytest.approx(0.95, abs=0.06)


def test_bounds_of_units_with_one_night_assume_that_runs_differ():
    dice = np.random.default_rng(9)
    table = bounds(simulated(dice, nights=1, night=0.0, cells=200))
    width = table["high_percent"] - table["low_percent"]
    assert set(table["bounds_from"]) == {"cells, and a default for runs"}
    assert width.min() > 1.0


def shared(*pairs):
    """One session of 0 on each unit, of 10 cells per set of units."""
    rows = [
        {"cell": f"{number} of {units}", "unit": unit, "night": 0, "n": 1, "y": 0.0, "ss": 0.0}
        for units in pairs
        for number in range(10)
        for unit in units
    ]
    return compare_units(pl.DataFrame(rows))


def test_cells_on_few_units_are_worth_less():
    assert shared("abcd").worth == pytest.approx([10] * 4)
    in_pairs = shared("ab", "ac", "ad", "bc", "bd", "cd")
    assert in_pairs.cells_of.tolist() == [30] * 4
    assert in_pairs.worth == pytest.approx([20] * 4)
    chain = shared("ab", "bc", "cd").worth
    assert chain[0] == pytest.approx(10 / 2 * 0.75 / 0.875)  # the ends hang on three links of five cells' worth
    assert chain[1] == pytest.approx(10)


def test_units_that_no_cells_link_are_groups():
    found = shared("ab", "cde")
    assert found.group.tolist() == [0, 0, 2, 2, 2]
    assert found.worth == pytest.approx([10] * 5)


def test_bounds_rest_on_what_cells_are_worth():
    """Two groups of units that a single cell links: the effect of each is about as certain as that cell."""
    dice = np.random.default_rng(10)
    groups = [("GPU-a", "GPU-b")] * 40 + [("GPU-c", "GPU-d", "GPU-e")] * 40 + [("GPU-b", "GPU-c")]
    rows = [
        row
        for number, units in enumerate(groups)
        for unit in units
        for row in measured(dice, spread=0.05, sessions=1, candidate=f"softmax/{number}", gpu_uuid=unit)
    ]
    table = bounds(rows).filter(pl.col("unit") == "GPU-a")
    assert table["cells"].item() == 40
    assert table["high_percent"].item() - table["low_percent"].item() > 10
