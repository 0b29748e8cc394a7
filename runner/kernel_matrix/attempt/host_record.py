"""The host's part of a record: the device, the image, the process exits, and the telemetry joined to the reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kernel_matrix.attempt.assignment import Assignment, RunContext
from kernel_matrix.attempt.attempt_log import AttemptLog
from kernel_matrix.attempt.clock_verdict import ClockVerdict, clock_verdict, clocks_info
from kernel_matrix.attempt.health_probe import HealthProbeResult, health_info
from kernel_matrix.attempt.outcome import under_clocks, under_lease
from kernel_matrix.attempt.source_findings import findings_info
from kernel_matrix.attempt.telemetry_join import join
from kernel_matrix.hosts.code_versions import measurement_version
from kernel_matrix.hosts.identity import host_identity
from kernel_matrix.images import ResolvedImage
from kernel_matrix.lease import Lease
from kernel_matrix.model.enums import ClockState
from kernel_matrix.model.instants import utc_now
from kernel_matrix.model.messages import SessionReport, to_json
from kernel_matrix.plan import Cell
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.links import group_link
from kernel_matrix.platforms.peaks import peak_of
from kernel_matrix.platforms.registry import get_platform, gpu_document
from kernel_matrix.results.record import (
    CellKey,
    ClocksInfo,
    EnvironmentInfo,
    HealthInfo,
    HostRecord,
    ImageInfo,
    LinkInfo,
    Outcome,
    TelemetrySummary,
)
from kernel_matrix.results.trace import TelemetryTrace, trace_name, trace_of

_NEVER_HELD = ClockVerdict(ClockState.NOT_APPLICABLE, "the device was never held")
_CPU = ClockVerdict(ClockState.NOT_APPLICABLE, "a CPU's clock is not the runner's to lock")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRecord:
    """The device's state for the record. The defaults are those of a device that was never held."""

    lease: Lease | None = None
    verdict: ClockVerdict = _NEVER_HELD
    clocks: ClocksInfo | None = None
    telemetry: TelemetrySummary | None = None
    health: HealthInfo | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOutcome:
    """An attempt as its record describes it, after the lease has ended."""

    outcome: Outcome
    reports: tuple[SessionReport, ...]
    device: DeviceRecord
    trace: TelemetryTrace | None = None


def of_cpu(lease: Lease, outcome: Outcome, log: AttemptLog, details: Mapping[str, Any]) -> AttemptOutcome:
    """Describe an attempt on a CPU, which has neither telemetry nor clock locks."""
    device = DeviceRecord(lease=lease, verdict=_CPU, details=details)
    return AttemptOutcome(outcome=outcome, reports=log.reports, device=device)


def of_gpu(
    lease: Lease,
    outcome: Outcome,
    log: AttemptLog,
    details: Mapping[str, Any],
    *,
    assignment: Assignment,
    probed: HealthProbeResult,
) -> AttemptOutcome:
    """Join telemetry to the reports, and check the outcome against the lease, which has ended, and the clocks."""
    policy, stem = assignment.cell.policy, f"{assignment.cell.id}.{assignment.attempt}"
    snapshots = list(lease.snapshots)
    entries = ((one.sample, one.own, one.foreign, one.trouble) for one in snapshots)
    trace = trace_of(entries) if snapshots else None
    joined = join(
        snapshots, log.seen, exclusive=bool(policy.exclusive), trace=trace_name(stem) if trace is not None else None
    )
    verdict = clock_verdict(lease.clocks, joined)
    device = DeviceRecord(
        lease=lease,
        verdict=verdict,
        clocks=clocks_info(lease.clocks, joined),
        telemetry=joined.summary,
        health=health_info(lease, probed),
        details=details,
    )
    final = under_clocks(under_lease(outcome, lease, policy), joined, verdict, policy)
    return AttemptOutcome(outcome=final, reports=joined.reports, device=device, trace=trace)


def make_host_record(of: Assignment, context: RunContext, device: DeviceRecord, log: AttemptLog) -> HostRecord:
    """Put the host's part of the record together; the attempt ends at this moment."""
    identity, lease = host_identity(), device.lease
    return HostRecord(
        hostname=identity.hostname,
        machine=identity.machine,
        platform=identity.platform,
        cpu=identity.cpu,
        cores=identity.cores,
        version=identity.version,
        measurement_version=measurement_version(of.gpu.platform),
        engine=context.sandbox.name,
        engine_version=context.sandbox_status.version,
        engine_details=context.sandbox_status.details,
        image=_image_used(of.image),
        device=gpu_document(of.gpu),
        device_before=lease.before if lease else {},
        device_after=lease.after if lease else {},
        device_details=device.details,
        peak=to_json(peak_of(of.gpu)),
        exclusive=lease.exclusive if lease else "not_applicable",
        exclusive_reason=lease.reason if lease else _NEVER_HELD.reason,
        foreign_pids=lease.foreign_pids if lease else (),
        clock_policy=of.cell.policy.clocks.value,
        clock_state=device.verdict.state.value,
        clock_reason=device.verdict.reason,
        clocks=device.clocks,
        telemetry=device.telemetry,
        health=device.health,
        isolation=log.isolation,
        exits=tuple(log.exits),
        phases_s=log.phases_s(),
        started_at=log.started_at,
        ended_at=utc_now(),
        warnings=tuple(warning for one in lease.members for warning in one.warnings) if lease else (),
        build=of.build.seen if of.build is not None else None,
        findings=findings_info(log.scan),
        code=log.code,
        environment=_environment_used(of.image),
        devices=tuple(map(gpu_document, of.gpu.devices)),
        link=_link_used(of.gpu),
        platform_proven=get_platform(of.gpu.platform).PROVEN,
    )


def _link_used(gpu: Gpu) -> LinkInfo | None:
    link = group_link(gpu.devices)
    if link is None or link.kind is None:
        return None
    return LinkInfo(kind=link.kind, lanes=link.lanes, bytes_per_s=link.bytes_per_s, peer=link.peer)


def _environment_used(image: ResolvedImage | None) -> EnvironmentInfo | None:
    if image is None or image.environment is None:
        return None
    of = image.environment
    return EnvironmentInfo(python=of.python, distributions=of.distributions, programs=of.programs)


def _image_used(image: ResolvedImage | None) -> ImageInfo | None:
    if image is None:
        return None
    return ImageInfo(
        reference=image.reference, id=image.id, repo_digest=image.repo_digest, store=image.store, state=image.state
    )


def cell_key(cell: Cell) -> CellKey:
    """Describe the cell as records do."""
    problem, candidate = cell.problem, cell.candidate
    return CellKey(
        gpu=cell.gpu.name,
        toolchain=cell.toolchain.name,
        dtype=cell.dtype,
        problem=problem.id,
        problem_sha256=problem.digest,
        category=problem.category,
        level=problem.level,
        source=problem.source,
        candidate=candidate.id,
        candidate_sha256=candidate.digest,
        language=candidate.language,
        tier=cell.protocol.tier,
        workloads=tuple(w.name for w in cell.workloads),
        origin={name: value for name, value in asdict(candidate.origin).items() if value is not None},
        expect=candidate.expect,
        held_out=tuple(w.name for w in problem.held_out_workloads),
        ranks=problem.ranks,
    )
