"""The heat map GPU × problem."""

import polars as pl
import pytest

from kernel_matrix.analysis.outcomes import outcomes
from kernel_matrix.report.heat_map import build_heat_map, overall
from tests.analysis.made import cell, cells


def grid(*rows):
    return build_heat_map(outcomes(cells(rows)).collect())


def timed(ns, **columns):
    return cell(baseline_median_ns=200.0, candidate_median_ns=ns, **columns)


def test_heat_map_shows_best_with_verdict_and_counts_all():
    found = grid(
        timed(100.0, candidate="a"),
        timed(50.0, candidate="b", verdict="inconclusive", grade="C"),
        cell(candidate="c", status="incorrect_values", fault="candidate"),
        cell(candidate="d", status="gpu_busy", fault="infra"),
    ).row(0, named=True)
    assert (found["best"], found["best_candidate"]) == (pytest.approx(4.0), "b")
    assert (found["state"], found["grade"]) == ("inconclusive", "C")
    assert (found["candidates"], found["passed"], found["uncounted"]) == (3, 2, 1)
    assert found["mean"] == pytest.approx(8**0.5)


def test_a_candidate_passes_where_every_workload_does():
    found = grid(
        timed(10.0, workload="smoke", record=0),
        cell(workload="large", record=1, cell_id="other", status="timeout", fault="candidate"),
    ).row(0, named=True)
    assert (found["passed"], found["state"], found["best"]) == (0, "failed", None)


def test_workloads_that_disagree_are_said_to():
    rows = [timed(100.0, workload="smoke", verdict="faster"), timed(400.0, workload="large", verdict="slower")]
    found = grid(*rows).row(0, named=True)
    assert (found["state"], found["best"]) == ("mixed", pytest.approx(1.0))


@pytest.mark.parametrize(
    ("columns", "state"),
    [
        ({"status": "incorrect_values", "fault": "candidate"}, "failed"),
        ({"status": "gpu_busy", "fault": "infra"}, "uncounted"),
        ({"status": "unsupported", "fault": "unsupported"}, "uncounted"),
        ({"verdict": None}, "untimed"),
    ],
)
def test_what_has_no_times_has_a_state(columns, state):
    assert grid(cell(**columns))["state"].to_list() == [state]


@pytest.mark.parametrize("candidate_ns", [0.0, float("inf")])
def test_zero_and_infinite_times_are_no_best(candidate_ns):
    row = {
        "baseline_median_ns": 200.0,
        "candidate_median_ns": candidate_ns,
        "speedup": 200.0 / (candidate_ns or 1e-320),
    }
    found = grid(cell(**row, candidate="odd"), timed(100.0, candidate="plain")).row(0, named=True)
    assert (found["best_candidate"], found["best"]) == ("plain", pytest.approx(2.0))


def test_over_dtypes_and_toolchains_the_fastest_stands_for_all():
    found = overall(grid(timed(100.0, dtype="fp32"), timed(50.0, dtype="fp16"), timed(80.0, toolchain="cu124")))
    assert found.select("best", "candidates", "passed").row(0) == (pytest.approx(4.0), 3, 3)


def test_a_failure_hides_behind_nothing_that_did_not_count():
    rows = grid(
        cell(status="timeout", fault="candidate", dtype="fp32"), cell(status="gpu_busy", fault="infra", dtype="fp16")
    )
    assert overall(rows)["state"].to_list() == ["failed"]


def test_nothing_gives_nothing():
    assert grid().is_empty()
    assert overall(grid()).is_empty()
    assert isinstance(grid(), pl.DataFrame)


def test_heat_map_compares_gpus_by_common_workloads():
    rows = [
        timed(100.0, gpu="a", workload="default"),
        timed(10.0, gpu="a", workload="smoke", record=1, cell_id="smoke", verdict="slower"),
        timed(50.0, gpu="b", workload="default", record=2, cell_id="other"),
    ]
    found = grid(*rows).select("gpu", "best", "state").rows()
    assert found == [("a", pytest.approx(2.0), "faster"), ("b", pytest.approx(4.0), "faster")]


def test_heat_map_without_common_workloads_shows_all():
    rows = [
        timed(100.0, gpu="a", workload="default"),
        timed(50.0, gpu="b", workload="smoke", cell_id="other", record=1),
    ]
    assert grid(*rows)["best"].to_list() == [pytest.approx(2.0), pytest.approx(4.0)]
