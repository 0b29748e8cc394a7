"""What a cell's outcome and reports are once the lease has ended and all that was seen of the device is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner.cell.assignment import Assignment
from runner.cell.clocks import ClockVerdict, clock_verdict, clocks_told
from runner.cell.course import Course
from runner.cell.health import Probed, health_seen
from runner.cell.hosthalf import DeviceHalf
from runner.cell.telemetry import join
from runner.cell.verdict import under_clocks, under_lease
from runner.core.messages import SessionReport
from runner.core.vocab import ClockState
from runner.lease import Lease
from runner.results.record import Outcome
from runner.results.trace import Trace, trace_name, trace_of

_CPU = ClockVerdict(ClockState.NOT_APPLICABLE, "a CPU's clock is not the runner's to lock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    """An attempt as its record tells it."""

    outcome: Outcome
    reports: tuple[SessionReport, ...]
    device: DeviceHalf
    trace: Trace | None = None


def of_cpu(lease: Lease, outcome: Outcome, course: Course, details: Mapping[str, Any]) -> Hindsight:
    """On a CPU there is nothing to join, to prove or to give back."""
    device = DeviceHalf(lease=lease, verdict=_CPU, details=details)
    return Hindsight(outcome=outcome, reports=course.reports, device=device)


def of_gpu(
    lease: Lease,
    outcome: Outcome,
    course: Course,
    details: Mapping[str, Any],
    *,
    assignment: Assignment,
    probed: Probed,
) -> Hindsight:
    """Telemetry joined to the reports, and the outcome that the lease leaves standing.

    :param lease: has ended.
    """
    policy, stem = assignment.cell.policy, f"{assignment.cell.id}.{assignment.attempt}"
    looks = list(lease.looks)
    trace = trace_of((look.sample, look.own, look.foreign, look.trouble) for look in looks) if looks else None
    joined = join(looks, course.seen, exclusive=policy.exclusive, trace=trace_name(stem) if trace is not None else None)
    verdict = clock_verdict(lease.clocks, joined)
    device = DeviceHalf(
        lease=lease,
        verdict=verdict,
        clocks=clocks_told(lease.clocks, joined),
        telemetry=joined.summary,
        health=health_seen(lease, probed),
        details=details,
    )
    settled = under_clocks(under_lease(outcome, lease, policy), joined, verdict, policy)
    return Hindsight(outcome=settled, reports=joined.reports, device=device, trace=trace)
