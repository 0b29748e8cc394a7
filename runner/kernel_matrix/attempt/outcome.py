"""Outcome of an attempt, decided from the judge's report, the process exits, the lease and the clocks.

The host overrules the report where it knows better. A process that the kernel killed for its memory is out of memory,
although the judge only saw it end without an answer; a session without a report is an infrastructure failure. A time
counts only if this cell had the GPU to itself, and in the state that the policy asks for.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace

from kernel_matrix.attempt.clock_verdict import ClockVerdict
from kernel_matrix.attempt.probe_process import last_words
from kernel_matrix.attempt.session_processes import SessionResult
from kernel_matrix.attempt.telemetry_join import JoinedReports, names_of
from kernel_matrix.errors import ImageError
from kernel_matrix.lease import Lease
from kernel_matrix.matrix import Policy
from kernel_matrix.model.enums import ClockPolicy, ClockState, Role, Stage, Status, fault_of
from kernel_matrix.model.messages import DEVICE_STAYS_BUSY, ONCE_TIMED, Evidence, SessionReport
from kernel_matrix.platforms import AILING
from kernel_matrix.results.record import Outcome
from kernel_matrix.sandboxes import ProcessExit

_LOG_TAIL = 8 << 10

# Outcomes that another process on the GPU can cause or spoil.
_DISTURBED = frozenset(
    {Status.PASSED, Status.OUT_OF_MEMORY, Status.DOES_NOT_FIT, Status.TIMEOUT, Status.TIMING_MISMATCH}
)


def outcome_of(status: Status, stage: Stage, evidence: Evidence) -> Outcome:
    """Make an outcome with the fault that belongs to its status."""
    return Outcome(status=status, stage=stage, fault=fault_of(status), evidence=evidence)


def machine_failed(error: Exception, stage: Stage) -> Outcome:
    """Make the outcome of a cell that an error of this machine ended."""
    if isinstance(error, ImageError):
        return outcome_of(Status.IMAGE_ERROR, Stage.IMAGE, Evidence(message=str(error)))
    return outcome_of(Status.INFRA_ERROR, stage, Evidence(message=str(error)))


def lost(why: str, stage: Stage) -> Outcome:
    """Make the outcome of a cell whose GPU stopped answering."""
    return outcome_of(Status.GPU_LOST, _unfinished(stage), Evidence(message=f"the GPU is lost: {why}"))


def how_it_ended(ended: ProcessExit) -> str:
    """Describe the end of a process that did not answer."""
    if ended.killed:
        return "it closed its connection but kept running, so it was killed"
    if ended.signal is not None:
        return f"killed by {_signal_name(ended.signal)}"
    return f"exit code {ended.code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have a number only
        return f"signal {number}"


# ---- one session


def decide_outcome(result: SessionResult) -> Outcome:
    """Decide the outcome of one session. The exit of a rival has no influence."""
    outcome = _outcome_from_all(result)
    if not outcome.is_specialised:
        return outcome
    message = f"specialised: fails a held-out shape: {outcome.evidence.message}"
    return replace(outcome, evidence=replace(outcome.evidence, message=message))


def _outcome_from_all(result: SessionResult) -> Outcome:
    exits = {e.role: e for e in result.exits}
    judge, candidate, baseline = (exits.get(role) for role in (Role.JUDGE, Role.CANDIDATE, Role.BASELINE))
    report = result.report
    if report is None:
        return _without_report(result.trouble, judge, candidate, baseline)
    # A busy machine may hand out memory so slowly that the judge stops waiting before the kernel kills the process.
    starved = report.status is Status.TIMEOUT and candidate is not None and candidate.oom_killed
    if candidate is not None and (starved or report.status is Status.CRASHED):
        return _crashed(report, candidate)
    if report.status is Status.PROBLEM_ERROR and baseline is not None:
        return _problem_failed(report, baseline)
    if report.status is Status.INFRA_ERROR and report.stage is Stage.START:
        return _never_ready(report, [ended for ended in (candidate, baseline) if ended is not None])
    return outcome_of(report.status, report.stage, report.evidence)


def _without_report(
    trouble: str, judge: ProcessExit | None, candidate: ProcessExit | None, baseline: ProcessExit | None
) -> Outcome:
    tails = [ended.log_tail[-_LOG_TAIL:] for ended in (judge, candidate, baseline) if ended is not None]
    why = _why_no_report(judge, candidate, baseline)
    evidence = Evidence(message=f"{why}; {trouble}", log=next(filter(None, tails), ""))
    return outcome_of(Status.CONTAINER_LOST, Stage.START, evidence)


def _why_no_report(judge: ProcessExit | None, candidate: ProcessExit | None, baseline: ProcessExit | None) -> str:
    contestants = [ended for ended in (candidate, baseline) if ended is not None]
    for ended in contestants:
        if ended.lost:
            return f"the {ended.role.value}'s process was lost (daemon stopped, or removed from outside)"
    if judge is None or judge.lost:
        return "the judge's process was lost (daemon stopped, or removed from outside)"
    if judge.oom_killed:
        return "the judge ran out of memory; raise policy.memory_mib"
    for ended in contestants:
        if judge.killed and not ended.killed:
            return f"the {ended.role.value}'s process ended before it answered the judge: {how_it_ended(ended)}"
    if judge.killed:
        return "the judge did not end in time and was killed"
    words = last_words(judge)
    how = f"code {judge.code}" if judge.signal is None else f"signal {judge.signal}"
    return f"the judge ended with {how}{f': {words}' if words else ''}"


def _crashed(report: SessionReport, candidate: ProcessExit) -> Outcome:
    if candidate.lost:
        evidence = replace(report.evidence, message="the candidate's process was lost by the sandbox")
        return outcome_of(Status.CONTAINER_LOST, report.stage, evidence)
    log = candidate.log_tail[-_LOG_TAIL:]
    if candidate.oom_killed:
        evidence = replace(report.evidence, message="killed for using more memory than its limit", log=log)
        return outcome_of(Status.OUT_OF_MEMORY, report.stage, evidence)
    message = f"the process ended without answering: {how_it_ended(candidate)}"
    return outcome_of(Status.CRASHED, report.stage, replace(report.evidence, message=message, log=log))


def _never_ready(report: SessionReport, contestants: Sequence[ProcessExit]) -> Outcome:
    """Make the outcome of a session that ended before candidate code was loaded, with the log of what ended first."""
    died = [ended for ended in contestants if not ended.killed and ended.code != 0]
    if not died:
        return outcome_of(report.status, report.stage, report.evidence)
    ended, status = died[0], report.status
    how = how_it_ended(ended)
    if ended.lost:
        status, how = Status.CONTAINER_LOST, "lost by the sandbox"
    elif ended.oom_killed:
        how = "killed for using more memory than its limit; raise policy.memory_mib"
    message = f"{report.evidence.message} (before it loaded any code of the candidate or the problem: {how})"
    return outcome_of(status, report.stage, replace(report.evidence, message=message, log=ended.log_tail[-_LOG_TAIL:]))


def _problem_failed(report: SessionReport, baseline: ProcessExit) -> Outcome:
    """Decide the outcome of a problem that failed, taking the exit of the baseline's process into account."""
    if baseline.lost:
        evidence = replace(report.evidence, message="the baseline's process was lost by the sandbox")
        return outcome_of(Status.CONTAINER_LOST, report.stage, evidence)
    evidence = replace(report.evidence, log=report.evidence.log or baseline.log_tail[-_LOG_TAIL:])
    if baseline.oom_killed:
        message = "the reference was killed for using more memory than its limit; raise policy.memory_mib"
        evidence = replace(evidence, message=message)
    return outcome_of(report.status, report.stage, evidence)


# ---- the whole attempt


def under_lease(outcome: Outcome, lease: Lease, policy: Policy) -> Outcome:
    """Replace the outcome of a GPU's cell if the GPU was lost, or if other processes were on it."""
    if lease.lost:
        return lost(lease.lost, outcome.stage)
    if lease.foreign_pids and policy.exclusive and outcome.status in _DISTURBED:
        return _instead(outcome, Status.CONTENDED, f"another process came onto the GPU: {lease.reason}")
    stays_busy = outcome.status is Status.TIMING_MISMATCH and outcome.evidence.message.startswith(DEVICE_STAYS_BUSY)
    if stays_busy and not lease.sees_processes:
        message = f"the GPU is busy, and it is not known with whose work: {lease.reason}"
        return _instead(outcome, Status.CONTENDED, message)
    return outcome


def under_clocks(outcome: Outcome, joined: JoinedReports, clocks: ClockVerdict, policy: Policy) -> Outcome:
    """Replace the outcome of a cell that passed if its clocks were not as the policy asks."""
    if outcome.status is not Status.PASSED:
        return outcome
    if joined.throttled & AILING:
        names = ", ".join(names_of(joined.throttled & AILING))
        message = f"the GPU slowed itself down for too much of the measurement: {names}"
        return _instead(outcome, Status.THROTTLED, message)
    if policy.clocks is ClockPolicy.REQUIRE and clocks.state is not ClockState.LOCKED:
        status = Status.THROTTLED if clocks.state is ClockState.THROTTLED else Status.CLOCKS_NOT_HELD
        return _instead(outcome, status, f"locked clocks are required: {clocks.reason}")
    return outcome


def once_timed(outcome: Outcome, sessions: Sequence[SessionReport]) -> Outcome:
    """Replace an outcome that cannot be true if an earlier session of the attempt was timed.

    A candidate that has been timed compiles and loads, and its image exists. If a later session reports otherwise, that
    session failed for another reason.
    """
    timed = any(workload.blocks for report in sessions for workload in report.workloads)
    later = {**ONCE_TIMED, Status.IMAGE_ERROR: Status.INFRA_ERROR}
    if not timed or outcome.status not in later:
        return outcome
    return outcome_of(later[outcome.status], outcome.stage, outcome.evidence)


def _instead(outcome: Outcome, status: Status, message: str) -> Outcome:
    return outcome_of(status, _unfinished(outcome.stage), replace(outcome.evidence, message=message))


def _unfinished(stage: Stage) -> Stage:
    return Stage.TIME if stage is Stage.DONE else stage
