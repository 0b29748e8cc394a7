"""How the conditions of a cell and of a run are told."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kernel_matrix.api.wording import describe_label
from kernel_matrix.cli.run_conditions import RunConditions, complaints, conditions_document, conditions_line
from kernel_matrix.executors.local import EventKind, RunEvent
from tests.results.factory import CLOCKS, HEALTH, HOST, failed_record, make_record


def record(*labels, **host):
    sessions = tuple(replace(session, labels=labels) for session in make_record().sessions)
    return make_record(host=replace(HOST, **host), sessions=sessions)


def event(happening=EventKind.CELL_ENDED, **values):
    return RunEvent(happening=happening, cell=None, lane="GPU-1", **values)


def session(left=0, **quarantined):
    return SimpleNamespace(left=left, quarantined=quarantined)


@pytest.mark.parametrize(
    ("host", "line"),
    [
        ({}, " [locked]"),
        ({"clock_state": "unlocked", "clock_policy": "observe"}, " [unlocked]"),
        ({"clock_state": "unlocked"}, " [unlocked (policy lock)]"),
        ({"clock_state": "throttled", "clock_policy": "observe"}, " [throttled]"),
        (
            {"exclusive": "unproven", "exclusive_reason": "it is in MIG mode"},
            " [locked, not proven alone: it is in MIG mode]",
        ),
        ({"clock_state": "not_applicable", "clock_policy": "lock", "exclusive": "not_applicable"}, ""),
    ],
)
def test_a_cells_line_says_what_its_time_is_worth(host, line):
    assert conditions_line(record(**host)) == line


def of_workload(record, *labels):
    (session,) = record.sessions
    workloads = tuple(replace(workload, labels=labels) for workload in session.workloads)
    return replace(record, sessions=(replace(session, workloads=workloads),))


def test_labels_are_told_with_the_cell_and_explained_at_the_end():
    cells = [
        of_workload(record("rival_failed:compile"), "low_resolution", "budget_reached"),
        record("low_resolution", "interpreted", "not_a_label"),
    ]
    assert [conditions_line(cell) for cell in cells] == [
        " [locked, rival_failed:compile, low_resolution]",
        " [locked, low_resolution]",  # its line says anyway that it was interpreted
    ]
    conditions = RunConditions()
    for cell in cells:
        conditions.note(cell)
    assert list(conditions.lines(session()))[:2] == [
        f"low_resolution, 2 cells: {describe_label('low_resolution')}",
        f"rival_failed:compile, 1 cells: {describe_label('rival_failed')}",
    ]


def test_labels_of_information_are_told_only_where_they_are_rare():
    conditions = RunConditions()
    conditions.note(record("budget_reached"))
    assert list(conditions.lines(session())) == ["clocks of timed cells: 1 locked"]
    for _ in range(10):
        conditions.note(record())
    assert next(conditions.lines(session())) == f"budget_reached, 1 cells: {describe_label('budget_reached')}"


def test_scripts_get_the_same_in_fields():
    quarantined = replace(HEALTH, quarantined=True)
    assert conditions_document(record(health=quarantined)) == {
        "clock_state": "locked",
        "clock_reset": "confirmed",
        "exclusive": "proven",
        "quarantined": True,
    }
    assert conditions_document(record(clocks=None, health=None))["clock_reset"] is None


def test_clocks_that_were_given_back_are_nothing_to_complain_of():
    assert list(complaints(event(record=record()))) == []
    assert list(complaints(event(record=record(clocks=None)))) == []


def test_clocks_that_were_not_are_an_error_that_says_what_to_do():
    clocks = replace(CLOCKS, reset="failed", reset_reason="NVML error 999")
    (line,) = complaints(event(record=record(clocks=clocks)))
    assert line == "the clocks of GPU-1 were NOT given back: NVML error 999; kernel-matrix sweep tries again"


def test_a_reset_that_nobody_could_read_back_is_no_good_news():
    clocks = replace(CLOCKS, reset="unconfirmed", reset_reason="the GPU idles")
    (line,) = complaints(event(record=record(clocks=clocks)))
    assert line == "no reading confirms that the clocks of GPU-1 were given back: the GPU idles"


def test_a_quarantine_is_said_with_its_reason():
    (line,) = complaints(event(EventKind.GPU_QUARANTINED, text="the health probe failed"))
    assert line == "QUARANTINED GPU-1, nothing more runs on it in this run: the health probe failed"


def test_run_end_counts_states_and_explains_unheld_clocks():
    conditions = RunConditions()
    for host in (
        {},
        {},
        {"clock_state": "unlocked", "clock_reason": "only root may"},
        {"clock_state": "throttled", "clock_reason": "too hot"},
        {"clock_state": "unlocked", "clock_policy": "observe", "clock_reason": "nothing was changed"},
        {"clock_state": "not_applicable", "exclusive": "not_applicable"},
        {"exclusive": "unproven"},
    ):
        conditions.note(record(**host))
    assert list(conditions.lines(session())) == [
        "clocks of timed cells: 3 locked, 2 unlocked, 1 throttled",
        "  1 wanted locked, and not: only root may",
        "  1 wanted locked, and not: too hot",
        "1 cells ran on a GPU that was not proven to be theirs alone",
    ]


def test_a_run_on_a_cpu_has_no_conditions_to_tell():
    conditions = RunConditions()
    conditions.note(record(clock_state="not_applicable", exclusive="not_applicable"))
    assert list(conditions.lines(session())) == []
    assert list(conditions.lines(session(left=2))) == ["2 cells are left; run again to go on"]


def test_a_cell_that_was_not_timed_says_nothing_of_its_clocks():
    untimed = failed_record(host=replace(HOST, clock_state="unlocked", exclusive="unproven"))
    conditions = RunConditions()
    conditions.note(untimed)
    assert conditions_line(untimed) == ""
    assert list(conditions.lines(session())) == []


def test_what_a_quarantine_left_undone_is_said():
    assert list(RunConditions().lines(session(left=3, gpu="its memory did not come back"))) == [
        "quarantined: gpu: its memory did not come back",
        "3 cells are left, for want of a GPU to run them on: look at it, then run again",
    ]
    assert len(list(RunConditions().lines(session(gpu="it is hot")))) == 1
