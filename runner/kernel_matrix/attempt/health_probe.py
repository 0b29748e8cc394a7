"""Health of the GPU after a cell: a computation with a known answer, and the lease's check that processes are gone.

A GPU that fails is quarantined, since later cells would be measured on a faulty device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_matrix.attempt.probe_process import MAX_REASON, asked, last_words
from kernel_matrix.attempt.telemetry_join import ObservedSession
from kernel_matrix.errors import SandboxError
from kernel_matrix.lease import Lease, ResetState
from kernel_matrix.platforms import holds_for_all
from kernel_matrix.results.record import HealthInfo
from kernel_matrix.sandboxes import Mount, ProcessExit, RoleSpec, RunningProcess, Sandbox
from kernel_matrix.untrusted_json import UntrustedJsonError, read_object

PASSED, FAILED, NOT_RUN = "passed", "failed", "not_run"

_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class HealthProbeResult:
    """Result of a health probe."""

    result: str
    """:data:`PASSED`, :data:`FAILED` or :data:`NOT_RUN`."""
    reason: str


def health_from_judges(sessions: Sequence[ObservedSession]) -> HealthProbeResult | None:
    """Return a pass if each judge found the GPU healthy at the end of its session, else None."""
    if sessions and all(_was_well(session) for session in sessions):
        return HealthProbeResult(PASSED, "asked by the judge at the end of each session")
    return None


def _was_well(session: ObservedSession) -> bool:
    health = session.report.health if session.report is not None else None
    return health is not None and health.passed is True


def probe_health(
    sandbox: Sandbox,
    make_spec: Callable[[Mount], RoleSpec],
    *,
    scratch: Path,
    started: Callable[[RunningProcess], None],
    called_off: Callable[[], bool],
) -> HealthProbeResult:
    """Run a computation with a known answer on the GPU, for a minute at most; see :func:`asked` for the arguments."""
    probe = asked(sandbox, make_spec, scratch=scratch, started=started, called_off=called_off, limit_s=_LIMIT_S)
    try:
        with probe as (answer, ended):
            if called_off():
                return HealthProbeResult(NOT_RUN, "the run was cancelled before the health probe answered")
            return _judged(answer, ended)
    except SandboxError as error:
        return HealthProbeResult(NOT_RUN, f"the health probe could not be started: {error.what}")


def _judged(answer: Path, ended: ProcessExit | None) -> HealthProbeResult:
    if ended is None or ended.killed:
        return HealthProbeResult(FAILED, f"the GPU did not answer the health probe within {_LIMIT_S:.0f} s")
    try:
        said = read_object(answer)
    except UntrustedJsonError:
        return _without_answer(ended)
    reason = str(said.get("reason"))[:MAX_REASON]
    if said.get("passed") is True:
        return HealthProbeResult(PASSED, "")
    if said.get("passed", False) is None:
        return HealthProbeResult(NOT_RUN, f"the health probe could not run: {reason}")
    return HealthProbeResult(FAILED, f"the health probe failed: {reason}")


def _without_answer(ended: ProcessExit) -> HealthProbeResult:
    """Judge a probe without an answer: the GPU or its driver is only blamed for a probe that died by a signal."""
    if ended.signal is not None and not ended.oom_killed:
        return HealthProbeResult(FAILED, f"the health probe was killed by signal {ended.signal}: {last_words(ended)}")
    how = (
        "was lost by the sandbox" if ended.lost else f"ended with code {ended.code} and no answer: {last_words(ended)}"
    )
    return HealthProbeResult(NOT_RUN, f"the health probe {how}")


def health_info(lease: Lease, probed: HealthProbeResult) -> HealthInfo:
    """Summarize the GPU's health after its lease has ended, and decide whether it is quarantined."""
    quarantined = "; ".join(_ailments(lease, probed))
    checks = [one.aftermath for one in lease.members]
    reason = quarantined or "; ".join(dict.fromkeys(filter(None, (*(one.reason for one in checks), probed.reason))))
    return HealthInfo(
        processes_gone=holds_for_all(one.processes_gone for one in checks),
        memory_back=holds_for_all(one.memory_back for one in checks),
        probe=probed.result,
        reason=reason,
        quarantined=bool(quarantined),
    )


def never_held(why: str) -> HealthInfo:
    """Return the health of a GPU that could not be taken, for the reason ``why``."""
    return HealthInfo(processes_gone=None, memory_back=None, probe=NOT_RUN, reason=why, quarantined=True)


def _ailments(lease: Lease, probed: HealthProbeResult) -> Iterator[str]:
    if lease.lost:
        yield f"the GPU is lost: {lease.lost}"
    if probed.result == FAILED:
        yield probed.reason
    for one in lease.members:
        if one.aftermath.processes_gone is False or one.aftermath.memory_back is False:
            yield one.aftermath.reason
        if one.clocks.reset is ResetState.FAILED:
            yield f"its clocks could not be given back: {one.clocks.reset_reason}"
