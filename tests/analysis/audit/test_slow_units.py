"""Boards that are slower than the others of their model."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from benchmarks import slow_units
from kernel_matrix.analysis.audit import objections
from kernel_matrix.analysis.tables import open_tables
from tests.analysis.audit.planted import heard
from tests.analysis.made import cell, tables


@pytest.fixture(scope="module")
def real(merged_example):
    return slow_units.real_noise(open_tables([merged_example]))


@pytest.mark.parametrize("design", ["4 boards", "8 boards", "8 boards, each cell on 2", "3 boards, 3 nights"])
def test_no_board_of_healthy_fleets_is_accused(real, design):
    dice = np.random.default_rng(1)
    fleets = (slow_units.fleet(real, slow_units.DESIGNS[design], dice, 0.0) for _ in range(15))
    assert [accused for accused in map(slow_units.accused, fleets) if accused] == []


@pytest.mark.parametrize("design", ["4 boards", "8 boards", "8 boards, 2 of them slow", "3 boards, 3 nights"])
def test_boards_that_are_5_percent_slower_are_found(real, design):
    dice = np.random.default_rng(2)
    chosen = slow_units.DESIGNS[design]
    found = [slow_units.accused(slow_units.fleet(real, chosen, dice, 0.05)) for _ in range(15)]
    wanted = {f"GPU-{number}" for number in range(chosen.slow)}
    assert all(units <= wanted for units in found)
    assert sum(units == wanted for units in found) >= 14


def fleet(factors, *, cells=12, noise=0.003, **columns):
    """Rows of ``cells`` on each board, by its factor."""
    dice = np.random.default_rng(3)
    return [
        cell(
            gpu_uuid=unit,
            problem=f"p{number}",
            candidate_median_ns=1e5,
            baseline_median_ns=2e5 * factor * np.exp(dice.normal(0, noise)),
            **columns,
        )
        for unit, factor in factors.items()
        for number in range(cells)
    ]


def slow(rows):
    return [row["gpu_uuid"] for row in heard("slow_unit", tables(rows))]


HEALTHY = dict.fromkeys(("GPU-a", "GPU-b", "GPU-c", "GPU-d"), 1.0)


def test_objections_to_a_slow_board_spare_other_boards():
    made = tables(fleet({**HEALTHY, "GPU-slow": 1.08}))
    (found,) = heard("slow_unit", made)
    assert (found["gpu"], found["problem"], found["gpu_uuid"], found["count"]) == ("h200", None, "GPU-slow", 12)
    objected = made.cells.join(objections(made).lazy(), on=["record", "workload"]).collect()
    assert objected["gpu_uuid"].to_list() == ["GPU-slow"] * 12
    assert objected["checks"].to_list() == [["slow_unit"]] * 12


def test_two_boards_are_both_named_without_objection():
    made = tables(fleet({"GPU-a": 1.0, "GPU-b": 1.08}))
    (found,) = heard("units_apart", made)
    assert found["gpu"] == "h200"
    assert found["gpu_uuid"] is None
    assert found["evidence"].startswith("GPU-b is ")
    assert "slower than GPU-a" in found["evidence"]
    assert heard("slow_unit", made) == []
    assert objections(made).is_empty()
    assert heard("units_apart", tables(fleet({"GPU-a": 1.0, "GPU-b": 1.02}))) == []


@pytest.mark.parametrize(("factor", "found"), [(1.025, []), (1.035, ["GPU-e"])])
def test_certain_difference_must_exceed_the_margin(factor, found):
    factors = {**HEALTHY, "GPU-e": factor}
    assert slow([row for night in range(8) for row in fleet(factors, noise=0.0001, night=night)]) == found


def test_uncertain_difference_is_silent():
    assert slow(fleet({**HEALTHY, "GPU-e": 1.04}, cells=10, noise=0.06)) == []


def test_uncertain_board_is_not_accused_with_a_certain_one():
    certain = fleet({**HEALTHY, "GPU-slow": 1.04}, cells=60, noise=0.06)
    assert slow([*certain, *fleet({"GPU-few": 1.065}, cells=12, noise=0.06)]) == ["GPU-slow"]


def test_several_slow_boards_do_not_hide_each_other():
    slower = {"GPU-slow": 1.08, "GPU-slower": 1.15}
    assert sorted(slow(fleet({**HEALTHY, **slower}))) == ["GPU-slow", "GPU-slower"]
    assert slow(fleet({"GPU-a": 1.0, "GPU-b": 1.0, **slower})) == []  # a half accuses no other half


def test_a_fast_board_makes_no_other_slow():
    assert slow(fleet({**HEALTHY, "GPU-fast": 0.7})) == []


def test_boards_that_all_differ_need_more_than_the_margin():
    factors = {f"GPU-{number}": 1 + 0.015 * number for number in range(5)}
    assert slow(fleet(factors)) == []


def test_stray_times_make_no_board_slow():
    rows = fleet(HEALTHY, cells=20)
    for row in rows[-20:-16]:
        row["baseline_median_ns"] *= 3
    assert slow(rows) == []


def test_a_candidate_cannot_accuse_a_board():
    rows = fleet({**HEALTHY, "GPU-e": 1.0})
    for row in rows:
        row["candidate_median_ns"] *= 2 if row["gpu_uuid"] == "GPU-e" else 1
    assert slow(rows) == []


@pytest.mark.parametrize("column", ["driver", "image_id", "toolchain", "problem_sha256", "dtype", "workload"])
def test_only_times_of_equal_conditions_are_compared(column):
    other = fleet({"GPU-e": 1.1}, **{column: "fp16" if column == "dtype" else "other"})
    assert slow([*fleet(HEALTHY), *other]) == []


@pytest.mark.parametrize("common", [0, 1])
def test_boards_that_few_cells_link_are_not_compared(common):
    """Two boards, and three that have no cell of them, or one: theirs are slower all the same."""
    two = fleet({"GPU-a": 1.2, "GPU-b": 1.2}, cells=20)
    three = fleet({"GPU-c": 1.0, "GPU-d": 1.0, "GPU-e": 1.0}, cells=20)
    for row in three[common:]:
        row["problem_sha256"] = "other"
    assert slow([*two, *three]) == []


def test_boards_without_common_cells_are_compared_apart():
    two = fleet({"GPU-a": 1.0, "GPU-b": 1.2})
    three = fleet({"GPU-c": 1.0, "GPU-d": 1.0, "GPU-e": 1.0}, problem_sha256="other")
    assert slow([*two, *three]) == []
    (found,) = heard("units_apart", tables([*two, *three]))
    assert "slower than GPU-a" in found["evidence"]


def test_a_lower_clock_is_in_the_evidence():
    rows = fleet({**HEALTHY, "GPU-slow": 1.08}, sm_clock_mhz=1980.0)
    made = tables({**row, "sm_clock_mhz": 1800.0} if row["gpu_uuid"] == "GPU-slow" else row for row in rows)
    assert heard("slow_unit", made)[0]["evidence"].endswith("; its SM clock was 1800 MHz, of others up to 1980 MHz")
    assert "clock" not in heard("slow_unit", tables(rows))[0]["evidence"]


def test_rows_without_board_or_baseline_break_nothing():
    rows = fleet({**HEALTHY, "GPU-slow": 1.08})
    bare = [{**row, "gpu_uuid": None} for row in rows]
    assert slow([*rows, *bare]) == ["GPU-slow"]
    assert slow([{**row, "gpu_name": None} for row in rows]) == []
    made = tables(rows)
    none = replace(made, cells=made.cells.with_columns(baseline_median_ns=pl.lit(None, pl.Float64)))
    assert heard("slow_unit", none) == heard("units_apart", none) == []
