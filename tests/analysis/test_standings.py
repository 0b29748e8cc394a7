"""Standings: the combined result of a cell on all hosts."""

import math

import polars as pl
import pytest
from scipy.stats import t

from kernel_matrix.analysis.standings import STANDINGS, fold, one_toolchain_per_gpu, standings
from kernel_matrix.errors import NothingSelectedError
from kernel_matrix.measure.intervals import log_interval
from tests.analysis.made import cell, cells, over_sessions

FAILED = {"status": "incorrect_values", "fault": "candidate", "session_status": "incorrect_values"}
LOST = {"status": "gpu_lost", "fault": "infra", "session_status": "gpu_lost"}
EXCLUDED = {"status": "unsupported", "fault": "unsupported", "session_status": "unsupported"}


def stood(rows):
    found = standings(cells(rows))
    assert dict(found.table.schema) == STANDINGS
    return found


@pytest.mark.parametrize(
    ("others", "standing"),
    [
        ({}, "passed"),
        (LOST, "passed"),
        (FAILED, "failed"),
        (EXCLUDED, "passed"),
    ],
)
def test_the_weightiest_of_two_units_counts(others, standing):
    rows = [cell(candidate_median_ns=10, baseline_median_ns=20), cell(gpu_uuid="GPU-2", **others)]
    found = stood(rows)
    assert found.table["standing"].to_list() == [standing]
    contradicted = [note for note in found.notes if "pass on one unit" in note]
    assert len(contradicted) == (standing == "failed")


@pytest.mark.parametrize(("columns", "standing"), [(LOST, "unknown"), (EXCLUDED, "excluded"), (FAILED, "failed")])
def test_what_did_not_pass_has_no_time(columns, standing):
    (row,) = stood(over_sessions([(20, 10), (20, 11)], **columns)).table.to_dicts()
    assert (row["standing"], row["candidate_ns"], row["log_error"], row["sessions"]) == (standing, None, None, 0)


def test_what_failed_on_one_unit_has_no_time_of_another():
    passed = {"flops_share_of_peak": 0.2, "bytes_share_of_peak": 0.3, "share_of_peak": 0.5}
    rows = [*over_sessions([(20, 10), (20, 11)], **passed), *over_sessions([(20, 10)], gpu_uuid="GPU-2", **FAILED)]
    (row,) = stood(rows).table.to_dicts()
    assert (row["standing"], row["sessions"], row["baseline_sessions"]) == ("failed", 0, 0)
    times = ("candidate_ns", "log_error", "baseline_ns", "baseline_error", "speedup")
    assert {row[name] for name in (*times, *passed)} == {None}


def test_sessions_of_all_units_are_pooled_as_in_a_verdict():
    rows = [*over_sessions([(20, 10), (20, 11)]), *over_sessions([(20, 13)], gpu_uuid="GPU-2")]
    (row,) = stood(rows).table.to_dicts()
    wanted = log_interval([10, 11, 13])
    assert row["candidate_ns"] == pytest.approx(wanted.estimate)
    reach = t.ppf(0.975, row["log_degrees"]) * row["log_error"]
    assert row["candidate_ns"] * math.exp(reach) == pytest.approx(wanted.high)
    assert (row["baseline_ns"], row["baseline_sessions"]) == (pytest.approx(20), 3)


def test_cell_without_workload_failed_at_all_workloads():
    passing = [
        cell(gpu="a100", dtype=dtype, workload=workload, candidate_median_ns=10, baseline_median_ns=20)
        for dtype, workload in (("fp32", "small"), ("fp32", "large"), ("bf16", "half"))
    ]
    broken = [cell(dtype=dtype, **{**FAILED, "workload": None}) for dtype in ("fp32", "fp16")]
    table = stood([*passing, *broken]).table.filter(pl.col("standing") == "failed")
    assert sorted(zip(table["dtype"], table["workload"], strict=True)) == [
        ("fp16", "half"),
        ("fp16", "large"),
        ("fp16", "small"),
        ("fp32", "large"),
        ("fp32", "small"),
    ]


def test_a_problem_without_any_workload_keeps_its_row():
    (row,) = stood([cell(**{**FAILED, "workload": None})]).table.to_dicts()
    assert (row["workload"], row["standing"]) == (None, "failed")


def test_newest_content_counts_and_older_is_noted():
    rows = [
        cell(candidate_median_ns=10, baseline_median_ns=20, candidate_sha256="old", cell_id="1"),
        cell(candidate_sha256="new", cell_id="2", night=1, **FAILED),
    ]
    found = stood(rows)
    assert found.table["standing"].to_list() == ["failed"]
    assert any("1 older outcomes are left out" in note for note in found.notes)


@pytest.mark.parametrize("time", [0.0, -1.0, float("inf"), float("nan")])
def test_times_that_are_none_are_left_out_and_told(time):
    rows = [cell(session=0, candidate_median_ns=10.0), cell(session=1, candidate_median_ns=time)]
    found = stood(rows)
    assert found.table["candidate_ns"].to_list() == pytest.approx([10.0])
    assert any("1 sessions have a time that is zero" in note for note in found.notes)
    alone = stood(rows[1:])
    assert alone.table["candidate_ns"].to_list() == [None]
    assert any("passed without a positive, finite time" in note for note in alone.notes)


def test_no_cells_is_said():
    with pytest.raises(NothingSelectedError, match="hold no cells"):
        standings(cells([]))


def test_folding_puts_each_row_in_its_place():
    rows = [
        cell(gpu=gpu, candidate=candidate, candidate_median_ns=time)
        for gpu, candidate, time in (("b", "y", 4), ("a", "y", 3), ("b", "x", 2), ("c", "x", 1))
    ]
    table = stood(rows).table
    wide = fold(table, "gpu", ["a", "b"], ["candidate"])
    found = wide.of(wide.table["candidate_ns"])
    assert wide.keys["candidate"].to_list() == ["x", "y"]
    assert math.isnan(found[0, 0])
    assert (found[0, 1], found[1].tolist()) == (pytest.approx(2), pytest.approx([3, 4]))
    assert one_toolchain_per_gpu(table)
    assert not one_toolchain_per_gpu(stood([*rows, cell(gpu="a", toolchain="other")]).table)
