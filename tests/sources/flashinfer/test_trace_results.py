"""Traces of flashinfer-bench and SOL-ExecBench."""

from datetime import datetime, timezone

import polars as pl
import pytest

from kernel_matrix.analysis.outcomes import outcomes
from tests.results.importing.made import load, only, put


def trace(status="PASSED", solution="mine", uuid="w1", **evaluation):
    times = {"latency_ms": 0.02, "reference_latency_ms": 0.1, "speedup_factor": 5.0}
    return {
        "definition": "rmsnorm_h4096",
        "workload": {"axes": {"batch": 4}, "inputs": {}, "uuid": uuid},
        "solution": solution,
        "evaluation": {
            "status": status,
            "environment": {"hardware": "NVIDIA B200", "libs": {"torch": "2.9", "triton": "3.5"}},
            "timestamp": "2026-03-01T12:00:00+02:00",
            "log": "said",
            "correctness": {"max_relative_error": float("nan")},
            "performance": times if status == "PASSED" else None,
            **evaluation,
        },
    }


def test_an_evaluation_becomes_a_row(tmp_path):
    row = only(tmp_path, put(tmp_path / "rmsnorm.jsonl", [trace()]))
    assert (row["problem"], row["candidate"], row["workload"]) == ("rmsnorm_h4096", "mine", "w1")
    assert (row["gpu"], row["gpu_name"], row["torch"], row["triton"]) == ("NVIDIA B200", "NVIDIA B200", "2.9", "3.5")
    assert (row["candidate_median_ns"], row["baseline_median_ns"]) == (pytest.approx(2e4), pytest.approx(1e5))
    assert (row["speedup"], row["values_json"], row["message"]) == (pytest.approx(5), '{"batch": 4}', None)
    assert row["started_at"] == datetime(2026, 3, 1, 10, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("said", "status", "fault"),
    [
        ("INCORRECT_NUMERICAL", "incorrect_values", "candidate"),
        ("INCORRECT_SHAPE", "incorrect_shape", "candidate"),
        ("INCORRECT_DTYPE", "incorrect_dtype", "candidate"),
        ("RUNTIME_ERROR", "runtime_error", "candidate"),
        ("COMPILE_ERROR", "compile_error", "candidate"),
        ("TIMEOUT", "timeout", "candidate"),
        ("REWARD_HACK", "policy_violation", "candidate"),
        ("INVALID_REFERENCE", "invalid_problem", "problem"),
    ],
)
def test_every_status_has_its_own(tmp_path, said, status, fault):
    row = only(tmp_path, put(tmp_path / "a.jsonl", [trace(said)]))
    assert (row["status"], row["fault"], row["message"], row["candidate_median_ns"]) == (status, fault, "said", None)


def test_a_reference_that_was_not_timed_is_no_baseline(tmp_path):
    performance = {"latency_ms": 0.02, "reference_latency_ms": 0.0, "speedup_factor": 0.0}
    row = only(tmp_path, put(tmp_path / "a.jsonl", [trace(performance=performance)]))
    assert (row["baseline_median_ns"], row["speedup"]) == (None, None)
    assert row["warnings"] == ["reference_latency_ms is 0: the reference was not timed"]


def test_a_speedup_that_its_times_contradict_is_said(tmp_path):
    performance = {"latency_ms": 0.02, "reference_latency_ms": 0.1, "speedup_factor": 7.0}
    row = only(tmp_path, put(tmp_path / "a.jsonl", [trace(performance=performance)]))
    assert row["warnings"] == ["the file has a speed-up of 7, but its times give 5"]
    assert row["speedup"] == pytest.approx(5)


def test_passed_without_a_time(tmp_path):
    assert only(tmp_path, put(tmp_path / "a.jsonl", [trace(performance=None)]))["labels"] == ["not_timed"]


def test_one_evaluated_again_is_an_attempt_in_order_of_time(tmp_path):
    later = trace(timestamp="2026-03-02T00:00:00Z", performance={"latency_ms": 0.01})
    report, rows = load(tmp_path, put(tmp_path / "a.jsonl", [later, trace(), trace(uuid="w2")]))
    said = [(row["record"], row["workload"], row["attempt"], row["candidate_median_ns"]) for row in rows]
    assert said == [
        (0, "w1", 1, pytest.approx(2e4)),
        (1, "w1", 2, pytest.approx(1e4)),
        (1, "w2", 2, pytest.approx(2e4)),
    ]
    assert report.contested == 0
    latest = outcomes(pl.read_parquet(report.tables["cells"]).lazy()).collect().sort("workload")
    assert latest.select("workload", "candidate_ns").rows() == [("w1", pytest.approx(1e4)), ("w2", pytest.approx(2e4))]


def test_a_solution_that_is_wrong_on_one_workload_is_wrong(tmp_path):
    wrong = trace("INCORRECT_NUMERICAL", uuid="w2", log="off by 3")
    _report, rows = load(tmp_path, put(tmp_path / "a.jsonl", [trace(), wrong, trace(uuid="w3")]))
    assert {(row["record"], row["status"], row["message"], row["stage"]) for row in rows} == {
        (0, "incorrect_values", "off by 3", "verify")
    }
    assert [row["workload_status"] for row in rows] == ["passed", "incorrect_values", "passed"]
    assert [row["speedup"] is None for row in rows] == [False, True, False]


def test_other_faults_leave_remaining_results(tmp_path):
    lost = trace("INVALID_REFERENCE", uuid="w2", timestamp="2026-05-01T00:00:00Z")
    report, rows = load(tmp_path, put(tmp_path / "a.jsonl", [trace(), lost]))
    assert [(row["workload"], row["status"], row["attempt"]) for row in rows] == [
        ("w2", "invalid_problem", 1),
        ("w1", "passed", 2),
    ]
    latest = outcomes(pl.read_parquet(report.tables["cells"]).lazy()).collect()
    assert latest["workload"].to_list() == ["w1"]


def test_workloads_are_counted_and_broken_lines_are_refused(tmp_path):
    path = put(tmp_path / "a.jsonl", [trace(solution=None), trace("DANCED"), trace(), {"definition": "x"}])
    path.write_text(path.read_text() + '{"definition": \n' + "5\n")
    report, rows = load(tmp_path, path)
    assert len(rows) == 1
    assert report.files[0].notes == ("1 lines are workloads without an evaluation",)
    assert [(one.line, one.reason.partition(";")[0]) for one in report.refused] == [
        (2, "evaluation.status: 'DANCED' is not known"),
        (4, "lacks 'workload'"),
        (5, "not valid JSON: Expecting value"),
        (6, "must be an object"),
    ]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"timestamp": "yesterday"}, "timestamp: is not a time in ISO 8601"),
        ({"performance": {"latency_ms": -1}}, "latency_ms: must not be negative; got -1"),
        ({"environment": {"hardware": 4}}, "hardware: must be a string; got a number"),
    ],
)
def test_bad_values_are_refused(tmp_path, change, reason):
    report, rows = load(tmp_path, put(tmp_path / "a.jsonl", [trace(), trace(**change)]))
    assert (len(rows), report.refused[0].line) == (1, 2)
    assert report.refused[0].reason.endswith(reason)
