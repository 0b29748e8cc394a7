"""What a cell's outcome and reports are once the lease has ended and all that was seen of the device is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernel_matrix.attempt.assignment import Assignment
from kernel_matrix.attempt.attempt_log import AttemptLog
from kernel_matrix.attempt.clock_verdict import ClockVerdict, clock_verdict, clocks_told
from kernel_matrix.attempt.health_probe import HealthProbeResult, health_seen
from kernel_matrix.attempt.host_record import DeviceRecord
from kernel_matrix.attempt.lease_outcome import under_clocks, under_lease
from kernel_matrix.attempt.telemetry_join import join
from kernel_matrix.lease import Lease
from kernel_matrix.model.enums import ClockState
from kernel_matrix.model.messages import SessionReport
from kernel_matrix.results.record import Outcome
from kernel_matrix.results.trace import TelemetryTrace, trace_name, trace_of

_CPU = ClockVerdict(ClockState.NOT_APPLICABLE, "a CPU's clock is not the runner's to lock")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOutcome:
    """An attempt as its record tells it."""

    outcome: Outcome
    reports: tuple[SessionReport, ...]
    device: DeviceRecord
    trace: TelemetryTrace | None = None


def of_cpu(lease: Lease, outcome: Outcome, course: AttemptLog, details: Mapping[str, Any]) -> AttemptOutcome:
    """On a CPU there is nothing to join, to prove or to give back."""
    device = DeviceRecord(lease=lease, verdict=_CPU, details=details)
    return AttemptOutcome(outcome=outcome, reports=course.reports, device=device)


def of_gpu(
    lease: Lease,
    outcome: Outcome,
    course: AttemptLog,
    details: Mapping[str, Any],
    *,
    assignment: Assignment,
    probed: HealthProbeResult,
) -> AttemptOutcome:
    """Telemetry joined to the reports, and the outcome that the lease leaves standing.

    :param lease: has ended.
    """
    policy, stem = assignment.cell.policy, f"{assignment.cell.id}.{assignment.attempt}"
    looks = list(lease.looks)
    trace = trace_of((look.sample, look.own, look.foreign, look.trouble) for look in looks) if looks else None
    joined = join(looks, course.seen, exclusive=policy.exclusive, trace=trace_name(stem) if trace is not None else None)
    verdict = clock_verdict(lease.clocks, joined)
    device = DeviceRecord(
        lease=lease,
        verdict=verdict,
        clocks=clocks_told(lease.clocks, joined),
        telemetry=joined.summary,
        health=health_seen(lease, probed),
        details=details,
    )
    settled = under_clocks(under_lease(outcome, lease, policy), joined, verdict, policy)
    return AttemptOutcome(outcome=settled, reports=joined.reports, device=device, trace=trace)
