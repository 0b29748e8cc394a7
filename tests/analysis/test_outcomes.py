"""Outcomes and sessions: the two frames that every analysis starts from."""

import math

import polars as pl
import pytest

from kernel_matrix.analysis.outcomes import OUTCOMES, SESSIONS, aggregate, outcomes, sessions
from kernel_matrix.analysis.tables import open_tables
from kernel_matrix.errors import StoreError
from kernel_matrix.measure.intervals import log_interval
from tests.analysis.made import cell, cells, over_sessions, write

MEDIANS = [(200.0, 100.0), (210.0, 100.0), (190.0, 98.0)]


def only(frame):
    rows = frame.collect().to_dicts()
    assert len(rows) == 1
    return rows[0]


def test_sessions_are_averaged_as_in_a_verdict():
    row = only(outcomes(cells(over_sessions(MEDIANS))))
    wanted = log_interval([baseline / candidate for baseline, candidate in MEDIANS])
    assert row["speedup"] == pytest.approx(wanted.estimate)
    assert (row["speedup_low"], row["speedup_high"]) == pytest.approx((wanted.low, wanted.high))
    assert row["candidate_ns"] == pytest.approx(math.prod(c for _, c in MEDIANS) ** (1 / 3))
    assert (row["sessions"], row["passed"], row["counted"]) == (3, True, True)


def test_one_session_has_no_interval():
    row = only(outcomes(cells(over_sessions(MEDIANS[:1]))))
    assert (row["speedup"], row["speedup_low"], row["speedup_high"]) == (2.0, None, None)


def test_latest_attempt_per_host_and_unit_counts():
    rows = [
        cell(baseline_median_ns=200, candidate_median_ns=100),
        cell(baseline_median_ns=200, candidate_median_ns=50, night=1),
        cell(baseline_median_ns=200, candidate_median_ns=40, host_id="host2"),
        cell(baseline_median_ns=200, candidate_median_ns=20, gpu_uuid="GPU-2"),
    ]
    assert sorted(outcomes(cells(rows)).collect()["speedup"]) == pytest.approx([4.0, 5.0, 10.0])
    assert sorted(sessions(cells(rows)).collect()["speedup"]) == [2.0, 4.0, 5.0, 10.0]


@pytest.mark.parametrize(
    ("status", "fault", "counted", "compiled", "passed"),
    [
        ("compile_error", "candidate", True, False, False),
        ("incorrect_values", "candidate", True, True, False),
        ("infra_error", "infra", False, None, None),
        ("unsupported", "unsupported", False, None, None),
        ("invalid_problem", "problem", False, None, None),
        ("compiled", "none", False, None, None),
    ],
)
def test_only_what_a_candidate_did_counts(status, fault, counted, compiled, passed):
    row = only(outcomes(cells([cell(status=status, fault=fault, session_status=status)])))
    assert (row["counted"], row["compiled"], row["passed"]) == (counted, compiled, passed)


def test_times_of_what_did_not_pass_are_no_times():
    rows = list(over_sessions(MEDIANS, status="timing_mismatch", fault="candidate"))
    row = only(outcomes(cells(rows)))
    assert (row["speedup"], row["candidate_ns"]) == (None, None)
    assert sessions(cells(rows)).collect().is_empty()


def test_the_columns_are_those_that_are_told():
    assert dict(outcomes(cells([cell()])).collect_schema()) == OUTCOMES
    assert dict(sessions(cells([cell()])).collect_schema()) == SESSIONS


def test_records_of_several_folders_keep_apart(tmp_path):
    one = write(tmp_path / "one", over_sessions(MEDIANS))
    other = write(tmp_path / "other", over_sessions(MEDIANS, candidate="softmax/other"))
    found = open_tables([one, other])
    assert found.cells.select(pl.col("record").n_unique()).collect().item() == 2
    assert outcomes(found.cells).collect().height == 2


def test_a_folder_without_tables_says_what_to_do(tmp_path):
    with pytest.raises(StoreError, match=r"cells\.parquet does not exist") as caught:
        open_tables([tmp_path])
    assert "kernel-matrix merge" in str(caught.value)


def test_a_table_of_another_version_is_refused(tmp_path):
    folder = write(tmp_path, [])
    pl.DataFrame({"record": [1]}).write_parquet(folder / "cells.parquet")
    with pytest.raises(StoreError, match="does not have the schema"):
        open_tables([folder])


def test_outcomes_withdraw_verdicts_that_many_make_chance():
    rows = [
        cell(candidate=f"softmax/{number}", verdict="slower", verdict_reason="beyond_margin", verdict_chance=chance)
        for number, chance in enumerate((1e-6, 0.005, 0.009))
    ]
    rows += [
        cell(
            candidate=f"softmax/same{number}", verdict="inconclusive", verdict_reason="one_session", verdict_chance=0.5
        )
        for number in range(20)
    ]
    found = {row["candidate"]: row for row in outcomes(cells(rows)).collect().to_dicts()}
    assert [found[f"softmax/{number}"]["verdict"] for number in range(3)] == ["slower", "inconclusive", "inconclusive"]
    withdrawn = found["softmax/2"]
    assert (withdrawn["verdict_reason"], withdrawn["verdict_figure"]) == ("one_of_many", 0.009)
    assert found["softmax/same0"]["verdict_reason"] == "one_session"


def test_outcomes_without_chances_keep_their_verdicts():
    assert only(outcomes(cells([cell(verdict="slower")])))["verdict"] == "slower"


def test_aggregate_groups_only_rows_that_share_a_key():
    rows = pl.LazyFrame({"a": [1, 2, 1, None, None], "b": ["x", "x", "x", None, None], "n": [1, 2, 3, 4, 5]})
    found = aggregate(rows, ("a", "b"), pl.col("n").sum()).collect()
    assert found.rows() == [(2, "x", 2), (1, "x", 4), (None, None, 9)]
