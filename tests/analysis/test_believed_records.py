"""Which records can be a side of a pair, and whose times can be compared."""

from dataclasses import replace

import pytest

from kernel_matrix.analysis.audit.objected_rows import WARNINGS
from kernel_matrix.analysis.believed_records import TIME_CHECKS, find_believed_records
from kernel_matrix.model.enums import Grade
from tests.analysis.made import STEADY, failed, frame, over_sessions, tables, timed

BOUND = {"wall_bound_ns": 110}


def found(*rows, **options):
    return find_believed_records(tables([row for part in rows for row in part]), **options)


def test_sessions_that_do_not_count_leave_the_time_of_others():
    uncounted = {"session": len(STEADY), "candidate_median_ns": None, "baseline_median_ns": None}
    rows = timed(STEADY, **BOUND)
    assert found(rows, [rows[0] | uncounted]).table["time_fault"].to_list() == [None]
    second = {"workload": "other", "candidate_median_ns": None}
    assert found(rows, [rows[0] | second]).table["time_fault"].to_list() == ["it has no time"]


def test_passes_and_failures_by_their_own_fault_are_believed():
    believed = found(timed(STEADY, **BOUND), [failed(candidate="softmax/bad")])
    assert believed.table.select("candidate", "passed", "time_fault").rows() == [
        ("softmax/triton_row", True, None),
        ("softmax/bad", False, "it has no time"),
    ]
    assert believed.table["workloads"].to_list() == [["default"], []]
    assert not any(believed.left_out.values())


def test_latest_attempt_counts_unless_the_machine_ended_it():
    broken = failed(status="gpu_lost", fault="infra", night=2)
    believed = found([failed(status="timeout")], [failed(night=1)], [broken])
    assert believed.table["status"].to_list() == ["crashed"]
    assert believed.left_out["the machine, the problem or a missing feature ended the attempt"] == 1


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"origin_no_code": "the model refused"}, "it stands for an answer without code"),
        ({"expect": "crashed"}, "it is a control or the problem's own reference"),
        ({"candidate": "softmax/@reference"}, "it is a control or the problem's own reference"),
        ({"gpu_name": "NVIDIA L4"}, "the audit objects to it"),
    ],
)
def test_records_that_say_nothing_are_left_out(columns, reason):
    others = timed(STEADY, **BOUND, candidate="softmax/other", gpu_uuid="GPU-2")
    believed = found(timed(STEADY, **{**BOUND, **columns}), others)
    assert believed.left_out[reason] >= 1
    assert columns.get("candidate", "softmax/triton_row") not in believed.table["candidate"].to_list()


def test_candidate_that_fails_on_one_board_is_left_out():
    believed = found(timed(STEADY, **BOUND), [failed(gpu_uuid="GPU-2")])
    assert believed.table.is_empty()
    assert believed.left_out["the audit objects to it"] == 2


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"labels": ["interpreted"]}, "it ran in an interpreter"),
        ({"grade": "C"}, "the grade of its time is below B"),
        ({"grade": None}, "the grade of its time is below B"),
        ({"verdict_reason": "scattered"}, "its timed calls are few or scattered"),
        ({"verdict_reason": "audit_objects"}, "its timed calls are few or scattered"),
        ({"wall_bound_ns": None}, "the longest that its calls can have taken is not known"),
    ],
)
def test_times_that_cannot_be_believed_are_not_compared(columns, words):
    (fault,) = found(timed(STEADY, **{**BOUND, **columns})).table["time_fault"]
    assert fault.startswith(words)


def test_scattered_calls_cost_the_time_but_not_the_outcome():
    medians = (10_000, 10_100, 10_200)
    counts = {"baseline_samples": 11, "candidate_samples": 11, "wall_bound_ns": 11_000}
    made = tables([*over_sessions([(2 * ns, ns) for ns in medians], **counts), failed(candidate="softmax/bad")])
    samples = [
        {"record": 0, "session": session, "workload": "default", "contestant": who, "regime": "cold", "block": 0}
        | {"index": index, "device_ns": round(sides * ns * factor)}
        for session, ns in enumerate(medians)
        for who, sides in (("candidate", 1), ("eager", 2))
        for index, factor in enumerate((0.97, 0.98, 0.99, 0.995, 1, 1, 1.01, 1.02, 3, 4, 5))
    ]
    believed = find_believed_records(replace(made, samples=frame("samples", samples).lazy()))
    assert believed.left_out["the audit objects to it"] == 0
    assert believed.table["time_fault"].to_list() == ["the audit objects to its time", "it has no time"]


def test_timing_mismatch_counts_once_a_second_attempt_repeats_it():
    doubted = {"status": "timing_mismatch", "workload": "default"}
    assert found([failed(**doubted)]).left_out["only one attempt found its times false"] == 1
    repeated = found([failed(**doubted)], [failed(**doubted, night=1)])
    assert repeated.table["status"].to_list() == ["timing_mismatch"]
    assert found([failed(**doubted)], timed(STEADY, **BOUND, night=1)).table["status"].to_list() == ["passed"]


def test_checks_of_times_exist():
    assert set(TIME_CHECKS) <= WARNINGS


def test_a_weaker_grade_is_allowed_on_request():
    assert found(timed(STEADY, **BOUND, grade="C"), least_grade=Grade.C).table["time_fault"].to_list() == [None]


def test_tables_without_rows_have_no_records():
    assert found().table.is_empty()
