"""Outcome of an attempt, from the judge's report, the process exits, the lease and the clocks, case by case."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from kernel_matrix.attempt.clock_verdict import ClockVerdict
from kernel_matrix.attempt.outcome import decide_outcome, machine_failed, outcome_of, under_clocks, under_lease
from kernel_matrix.attempt.session_processes import SessionResult
from kernel_matrix.attempt.telemetry_join import JoinedReports
from kernel_matrix.errors import ImageError, SandboxError
from kernel_matrix.matrix import Policy
from kernel_matrix.model.enums import ClockPolicy, ClockState, Fault, Role, Stage, Status
from kernel_matrix.model.messages import DEVICE_STAYS_BUSY, Evidence
from kernel_matrix.platforms import EventReason
from kernel_matrix.sandboxes import ProcessExit
from tests.results import factory

PASSED = factory.session()
WRONG = factory.session(0, Status.INCORRECT_VALUES, ())
CRASHED = factory.session(0, Status.CRASHED, ())
LATE = factory.session(0, Status.TIMEOUT, ())
NEVER_READY = replace(
    factory.session(0, Status.INFRA_ERROR, ()),
    stage=Stage.START,
    evidence=Evidence(message="the worker of candidate: crashed: the process ended without answering"),
)
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
    "the kernel took it after the judge had stopped waiting": (
        LATE,
        [judge(), candidate(**killed_by(9, oom_killed=True))],
        Status.OUT_OF_MEMORY,
        "more memory",
    ),
    "it only took too long": (
        LATE,
        [judge(), candidate(**killed_by(9, killed=True))],
        Status.TIMEOUT,
        "",
    ),
    "somebody removed it": (CRASHED, [judge(), candidate(code=None, lost=True)], Status.CONTAINER_LOST, "lost"),
    "dead before it loaded anything": (
        NEVER_READY,
        [judge(), candidate(code=1), baseline(**killed_by(9, killed=True))],
        Status.INFRA_ERROR,
        "ended without answering (before it loaded any code of the candidate or the problem: exit code 1)",
    ),
    "baseline dead before it loaded anything": (
        NEVER_READY,
        [judge(), candidate(**killed_by(9, killed=True)), baseline(**killed_by(6))],
        Status.INFRA_ERROR,
        "SIGABRT",
    ),
    "too little memory to begin": (
        NEVER_READY,
        [judge(), candidate(**killed_by(9, oom_killed=True))],
        Status.INFRA_ERROR,
        "raise policy.memory_mib",
    ),
    "lost before it loaded anything": (
        NEVER_READY,
        [judge(), candidate(code=None, lost=True)],
        Status.CONTAINER_LOST,
        "lost by the sandbox",
    ),
    "too slow to begin": (NEVER_READY, [judge(), candidate()], Status.INFRA_ERROR, NEVER_READY.evidence.message),
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
    outcome = decide_outcome(SessionResult(report=report, exits=tuple(exits), trouble="" if report else TROUBLE))
    assert outcome.status is status
    assert words in outcome.evidence.message
    if report is None:
        assert TROUBLE in outcome.evidence.message
        assert outcome.fault is Fault.INFRA


def test_the_last_words_of_what_crashed_are_evidence():
    outcome = decide_outcome(SessionResult(report=CRASHED, exits=(judge(), candidate(code=3))))
    assert outcome.evidence.log == "last words"
    assert outcome.stage is CRASHED.stage


def test_log_of_what_died_before_loading_is_evidence():
    outcome = decide_outcome(SessionResult(report=NEVER_READY, exits=(judge(), candidate(code=1), baseline(code=1))))
    assert (outcome.fault, outcome.stage, outcome.evidence.log) == (Fault.INFRA, Stage.START, "last words")


def test_the_last_words_of_a_judge_without_a_report_are_evidence():
    outcome = decide_outcome(SessionResult(report=None, exits=(judge(code=1, log_tail="Traceback"), candidate())))
    assert outcome.evidence.log == "Traceback"
    assert decide_outcome(SessionResult(report=None, exits=(judge(), candidate()))).evidence.log == "last words"


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


# ---- the lease and the clocks


@dataclass
class Ended:
    """The part of an ended lease that decides an outcome."""

    lost: str = ""
    foreign_pids: tuple[int, ...] = ()
    reason: str = "foreign processes were seen: 7 (python)"
    sees_processes: bool = True


def outcome(status=Status.PASSED, stage=Stage.DONE):
    return outcome_of(status, stage, Evidence(message="as before", log="tail"))


def test_a_quiet_lease_leaves_everything_as_it_is():
    for status in Status:
        assert under_lease(outcome(status), Ended(), Policy()) == outcome(status)


@pytest.mark.parametrize("status", Status)
def test_on_a_lost_gpu_nothing_else_counts(status):
    found = under_lease(outcome(status), Ended(lost="it fell off the bus", foreign_pids=(7,)), Policy())
    assert (found.status, found.stage) == (Status.GPU_LOST, Stage.TIME)
    assert "fell off the bus" in found.evidence.message


@pytest.mark.parametrize("status", Status)
def test_company_spoils_what_it_can_bring_about(status):
    of_memory = {Status.OUT_OF_MEMORY, Status.DOES_NOT_FIT}
    spoiled = {Status.PASSED, Status.TIMEOUT, Status.TIMING_MISMATCH, *of_memory}
    found = under_lease(outcome(status), Ended(foreign_pids=(7,)), Policy())
    assert (found.status is Status.CONTENDED) == (status in spoiled or status is Status.CONTENDED)
    if status in spoiled:
        assert "7 (python)" in found.evidence.message
        assert found.evidence.log == "tail"


def test_company_that_is_allowed_spoils_nothing():
    assert under_lease(outcome(), Ended(foreign_pids=(7,)), Policy(exclusive=False)).status is Status.PASSED


@pytest.mark.parametrize(
    ("sees_processes", "message", "ends"),
    [
        (False, f"{DEVICE_STAYS_BUSY}: work goes on", Status.CONTENDED),
        (True, f"{DEVICE_STAYS_BUSY}: work goes on", Status.TIMING_MISMATCH),
        (False, "claims more than the wall", Status.TIMING_MISMATCH),
    ],
)
def test_busy_gpu_is_contended_if_processes_are_not_seen(sees_processes, message, ends):
    accused = outcome_of(Status.TIMING_MISMATCH, Stage.TIME, Evidence(message=message))
    assert under_lease(accused, Ended(sees_processes=sees_processes), Policy()).status is ends


def judged(status=Status.PASSED, *reasons, clocks=ClockPolicy.OBSERVE, state=ClockState.UNLOCKED):
    joined = JoinedReports(reports=(), summary=factory.TELEMETRY, throttled=frozenset(reasons))
    return under_clocks(outcome(status), joined, ClockVerdict(state, "1755 MHz were measured"), Policy(clocks=clocks))


@pytest.mark.parametrize("policy", ClockPolicy)
def test_a_cell_under_an_ailing_gpu_is_tried_again(policy):
    found = judged(Status.PASSED, EventReason.SW_POWER_CAP, EventReason.POWER_BRAKE, clocks=policy)
    assert found.status is Status.THROTTLED
    assert found.evidence.message.endswith(": power_brake")


@pytest.mark.parametrize("policy", [ClockPolicy.OBSERVE, ClockPolicy.LOCK])
def test_a_kernel_that_reaches_the_power_limit_has_passed(policy):
    found = judged(Status.PASSED, EventReason.SW_POWER_CAP, clocks=policy, state=ClockState.THROTTLED)
    assert found == outcome()


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (ClockState.LOCKED, Status.PASSED),
        (ClockState.UNLOCKED, Status.CLOCKS_NOT_HELD),
        (ClockState.THROTTLED, Status.THROTTLED),
    ],
)
def test_required_clocks_have_to_be_held(state, status):
    found = judged(clocks=ClockPolicy.REQUIRE, state=state)
    assert found.status is status
    assert status is Status.PASSED or "1755 MHz were measured" in found.evidence.message


def test_wanted_clocks_need_not_be_held():
    assert judged(clocks=ClockPolicy.LOCK).status is Status.PASSED


def test_what_failed_anyway_failed_for_its_own_reason():
    found = judged(Status.INCORRECT_VALUES, EventReason.HW_THERMAL, clocks=ClockPolicy.REQUIRE)
    assert found == outcome(Status.INCORRECT_VALUES)
