"""From what the inside says and what the host saw to one outcome.

The host has the last word where it knows better: a process killed by the kernel for its memory did not merely "end
without answering", and a session without a report is nobody's fault but the machine's.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace

from kernel_matrix.attempt.session_processes import SessionResult
from kernel_matrix.errors import ImageError
from kernel_matrix.model.enums import Role, Stage, Status, fault_of
from kernel_matrix.model.messages import ONCE_TIMED, Evidence, SessionReport
from kernel_matrix.results.record import Outcome
from kernel_matrix.sandboxes import ProcessExit

_LOG_TAIL = 8 << 10


def settle(result: SessionResult) -> Outcome:
    """The outcome of one session. What became of a rival decides nothing."""
    exits = {e.role: e for e in result.exits}
    judge, candidate, baseline = (exits.get(role) for role in (Role.JUDGE, Role.CANDIDATE, Role.BASELINE))
    if result.report is None:
        return _without_report(result.trouble, judge, candidate, baseline)
    report = result.report
    if report.status is Status.CRASHED and candidate is not None:
        return _crashed(report, candidate)
    if report.status is Status.PROBLEM_ERROR and baseline is not None:
        return _problem_failed(report, baseline)
    return outcome_of(report.status, report.stage, report.evidence)


def outcome_of(status: Status, stage: Stage, evidence: Evidence) -> Outcome:
    """An outcome with the fault that belongs to its status."""
    return Outcome(status=status, stage=stage, fault=fault_of(status), evidence=evidence)


def machine_failed(error: Exception, stage: Stage) -> Outcome:
    """What an error of this machine makes of a cell."""
    status = Status.IMAGE_ERROR if isinstance(error, ImageError) else Status.INFRA_ERROR
    stage = Stage.IMAGE if isinstance(error, ImageError) else stage
    return outcome_of(status, stage, Evidence(message=str(error)))


def how_it_ended(candidate: ProcessExit) -> str:
    """The end of a process that answered nothing, in words."""
    if candidate.killed:
        return "it closed its connection and stayed, so it was killed"
    if candidate.signal is not None:
        return f"killed by {_signal_name(candidate.signal)}"
    return f"exit code {candidate.code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have a number only
        return f"signal {number}"


def once_timed(outcome: Outcome, sessions: Sequence[SessionReport]) -> Outcome:
    """``outcome`` as it can be told of an attempt in which an earlier session was timed.

    What has run does compile and load, and its image was there: a later session that says otherwise broke down.
    """
    timed = any(workload.blocks for report in sessions for workload in report.workloads)
    later = {**ONCE_TIMED, Status.IMAGE_ERROR: Status.INFRA_ERROR}
    if not timed or outcome.status not in later:
        return outcome
    return outcome_of(later[outcome.status], outcome.stage, outcome.evidence)


def _without_report(
    trouble: str, judge: ProcessExit | None, candidate: ProcessExit | None, baseline: ProcessExit | None
) -> Outcome:
    tails = [seen.log_tail[-_LOG_TAIL:] for seen in (judge, candidate, baseline) if seen is not None]
    why = _why_no_report(judge, candidate, baseline)
    evidence = Evidence(message=f"{why}; {trouble}", log=next(filter(None, tails), ""))
    return outcome_of(Status.CONTAINER_LOST, Stage.START, evidence)


def _why_no_report(judge: ProcessExit | None, candidate: ProcessExit | None, baseline: ProcessExit | None) -> str:
    contestants = [seen for seen in (candidate, baseline) if seen is not None]
    for seen in contestants:
        if seen.lost:
            return f"the {seen.role.value}'s process was lost (daemon stopped, or removed by somebody else)"
    if judge is None or judge.lost:
        return "the judge's process was lost (daemon stopped, or removed by somebody else)"
    if judge.oom_killed:
        return "the judge ran out of memory; raise policy.memory_mib"
    for seen in contestants:
        if judge.killed and not seen.killed:
            return f"the {seen.role.value}'s process ended before it answered the judge: {how_it_ended(seen)}"
    if judge.killed:
        return "the judge did not end in time and was killed"
    return f"the judge ended with code {judge.code}, signal {judge.signal}"


def _crashed(report: SessionReport, candidate: ProcessExit) -> Outcome:
    if candidate.lost:
        evidence = replace(report.evidence, message="the candidate's process was lost by the engine")
        return outcome_of(Status.CONTAINER_LOST, report.stage, evidence)
    log = candidate.log_tail[-_LOG_TAIL:]
    if candidate.oom_killed:
        evidence = replace(report.evidence, message="killed for using more memory than its limit", log=log)
        return outcome_of(Status.OUT_OF_MEMORY, report.stage, evidence)
    message = f"the process ended without answering: {how_it_ended(candidate)}"
    evidence = replace(report.evidence, message=message, log=log)
    return outcome_of(Status.CRASHED, report.stage, evidence)


def _problem_failed(report: SessionReport, baseline: ProcessExit) -> Outcome:
    """A problem that cannot be run; where its own process was taken away, the host knows why."""
    if baseline.lost:
        evidence = replace(report.evidence, message="the baseline's process was lost by the engine")
        return outcome_of(Status.CONTAINER_LOST, report.stage, evidence)
    evidence = replace(report.evidence, log=report.evidence.log or baseline.log_tail[-_LOG_TAIL:])
    if baseline.oom_killed:
        message = "the reference was killed for using more memory than its limit; raise policy.memory_mib"
        evidence = replace(evidence, message=message)
    return outcome_of(report.status, report.stage, evidence)
