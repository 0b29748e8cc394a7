"""From what the inside says and what the host saw to one outcome, row by row."""

from __future__ import annotations

import pytest

from kernel_matrix.attempt.outcome import machine_failed, settle
from kernel_matrix.attempt.session_processes import SessionResult
from kernel_matrix.errors import ImageError, SandboxError
from kernel_matrix.model.enums import Fault, Role, Stage, Status
from kernel_matrix.sandboxes import ProcessExit
from tests.results import factory

PASSED = factory.session()
WRONG = factory.session(0, Status.INCORRECT_VALUES, ())
CRASHED = factory.session(0, Status.CRASHED, ())
BROKEN = factory.session(0, Status.PROBLEM_ERROR, ())
TROUBLE = "the judge's report: No such file or directory"


def judge(**how):
    return ProcessExit(role=Role.JUDGE, **{"code": 0, **how})


def candidate(**how):
    return ProcessExit(role=Role.CANDIDATE, **{"code": 0, "log_tail": "last words", **how})


def baseline(**how):
    return ProcessExit(role=Role.BASELINE, **{"code": 0, "log_tail": "its last words", **how})


def killed_by(signal, **how):
    return {"code": None, "signal": signal, **how}


OUTCOMES = {
    "all well": (PASSED, [judge(), candidate()], Status.PASSED, ""),
    "the judge's word counts": (WRONG, [judge(), candidate()], Status.INCORRECT_VALUES, ""),
    "whatever became of the candidate later": (
        WRONG,
        [judge(), candidate(**killed_by(9, killed=True))],
        Status.INCORRECT_VALUES,
        "",
    ),
    "exit 0 without an answer": (CRASHED, [judge(), candidate()], Status.CRASHED, "exit code 0"),
    "a segfault": (CRASHED, [judge(), candidate(**killed_by(11))], Status.CRASHED, "SIGSEGV"),
    "a signal without a name": (CRASHED, [judge(), candidate(**killed_by(40))], Status.CRASHED, "signal 40"),
    "hung up and stayed": (CRASHED, [judge(), candidate(**killed_by(9, killed=True))], Status.CRASHED, "closed"),
    "the kernel took it": (
        CRASHED,
        [judge(), candidate(**killed_by(9, oom_killed=True))],
        Status.OUT_OF_MEMORY,
        "more memory",
    ),
    "somebody removed it": (CRASHED, [judge(), candidate(code=None, lost=True)], Status.CONTAINER_LOST, "lost"),
    "its end is unknown": (CRASHED, [judge()], Status.CRASHED, ""),
    "a problem that cannot be run": (BROKEN, [judge(), candidate(), baseline()], Status.PROBLEM_ERROR, ""),
    "a problem too large": (
        BROKEN,
        [judge(), candidate(), baseline(**killed_by(9, oom_killed=True))],
        Status.PROBLEM_ERROR,
        "policy.memory_mib",
    ),
    "somebody removed the baseline": (
        BROKEN,
        [judge(), candidate(), baseline(code=None, lost=True)],
        Status.CONTAINER_LOST,
        "baseline's process was lost",
    ),
    "no report, baseline lost": (
        None,
        [judge(**killed_by(9, killed=True)), candidate(**killed_by(9, killed=True)), baseline(code=None, lost=True)],
        Status.CONTAINER_LOST,
        "the baseline's process was lost",
    ),
    "no report, baseline never began": (
        None,
        [judge(**killed_by(9, killed=True)), candidate(**killed_by(9, killed=True)), baseline(code=1)],
        Status.CONTAINER_LOST,
        "the baseline's process ended before it answered the judge: exit code 1",
    ),
    "no report, judge lost": (None, [judge(code=None, lost=True), candidate()], Status.CONTAINER_LOST, "was lost"),
    "no report, judge's end unknown": (None, [candidate()], Status.CONTAINER_LOST, "was lost"),
    "no report, candidate lost": (
        None,
        [judge(**killed_by(9, killed=True)), candidate(code=None, lost=True)],
        Status.CONTAINER_LOST,
        "the candidate's process was lost",
    ),
    "no report, candidate never began": (
        None,
        [judge(**killed_by(9, killed=True)), candidate(code=1)],
        Status.CONTAINER_LOST,
        "before it answered the judge: exit code 1",
    ),
    "no report, judge out of memory": (
        None,
        [judge(**killed_by(9, oom_killed=True))],
        Status.CONTAINER_LOST,
        "policy.memory_mib",
    ),
    "no report, judge too late": (
        None,
        [judge(**killed_by(9, killed=True)), candidate(**killed_by(9, killed=True))],
        Status.CONTAINER_LOST,
        "did not end in time",
    ),
    "no report, judge failed": (None, [judge(code=1), candidate()], Status.CONTAINER_LOST, "code 1"),
}


@pytest.mark.parametrize("row", OUTCOMES)
def test_one_outcome(row):
    report, exits, status, words = OUTCOMES[row]
    outcome = settle(SessionResult(report=report, exits=tuple(exits), trouble="" if report else TROUBLE))
    assert outcome.status is status
    assert words in outcome.evidence.message
    if report is None:
        assert TROUBLE in outcome.evidence.message
        assert outcome.fault is Fault.INFRA


def test_the_last_words_of_what_crashed_are_evidence():
    outcome = settle(SessionResult(report=CRASHED, exits=(judge(), candidate(code=3))))
    assert outcome.evidence.log == "last words"
    assert outcome.stage is CRASHED.stage


def test_the_last_words_of_a_judge_without_a_report_are_evidence():
    outcome = settle(SessionResult(report=None, exits=(judge(code=1, log_tail="Traceback"), candidate())))
    assert outcome.evidence.log == "Traceback"
    assert settle(SessionResult(report=None, exits=(judge(), candidate()))).evidence.log == "last words"


@pytest.mark.parametrize(
    ("error", "status", "stage"),
    [
        (SandboxError("no"), Status.INFRA_ERROR, Stage.START),
        (OSError(28, "No space left on device"), Status.INFRA_ERROR, Stage.START),
        (ImageError("gone", next_step="pull it"), Status.IMAGE_ERROR, Stage.IMAGE),
    ],
)
def test_an_error_of_the_machine_is_the_machines_fault(error, status, stage):
    outcome = machine_failed(error, Stage.START)
    assert (outcome.status, outcome.stage, outcome.fault) == (status, stage, Fault.INFRA)
    assert str(error) == outcome.evidence.message
