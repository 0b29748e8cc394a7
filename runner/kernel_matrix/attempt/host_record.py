"""The host half of a record: what only the host can know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kernel_matrix.attempt.assignment import Assignment, RunContext
from kernel_matrix.attempt.attempt_log import AttemptLog, utc_now
from kernel_matrix.attempt.clock_verdict import ClockVerdict
from kernel_matrix.attempt.source_findings import findings_told
from kernel_matrix.hosts.identity import core_sha256, host_identity
from kernel_matrix.images import ResolvedImage
from kernel_matrix.lease import Lease
from kernel_matrix.model.enums import ClockState
from kernel_matrix.model.messages import to_json
from kernel_matrix.plan import Cell
from kernel_matrix.platforms.peaks import peak_of
from kernel_matrix.results.record import CellKey, ClocksInfo, HealthInfo, HostRecord, ImageInfo, TelemetrySummary

_NEVER_HELD = ClockVerdict(ClockState.NOT_APPLICABLE, "the device was never held")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRecord:
    """What is told of the device beyond its name. The defaults are those of a device that was never held."""

    lease: Lease | None = None
    verdict: ClockVerdict = _NEVER_HELD
    clocks: ClocksInfo | None = None
    telemetry: TelemetrySummary | None = None
    health: HealthInfo | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def host_half(of: Assignment, bench: RunContext, device: DeviceRecord, course: AttemptLog) -> HostRecord:
    """Everything together; the attempt ends now."""
    identity, lease = host_identity(), device.lease
    return HostRecord(
        hostname=identity.hostname,
        machine=identity.machine,
        platform=identity.platform,
        cpu=identity.cpu,
        cores=identity.cores,
        version=identity.version,
        core_sha256=core_sha256(),
        engine=bench.engine.name,
        engine_version=bench.engine_status.version,
        engine_details=bench.engine_status.details,
        image=_image_used(of.image),
        device=asdict(of.gpu),
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
        isolation=course.isolation,
        exits=tuple(course.exits),
        phases_s=course.phases_s(),
        started_at=course.started_at,
        ended_at=utc_now(),
        warnings=lease.warnings if lease else (),
        build=of.build.seen if of.build is not None else None,
        findings=findings_told(course.scan),
    )


def _image_used(image: ResolvedImage | None) -> ImageInfo | None:
    if image is None:
        return None
    return ImageInfo(
        reference=image.reference, id=image.id, repo_digest=image.repo_digest, store=image.store, state=image.state
    )


def cell_key(cell: Cell) -> CellKey:
    """The cell in words, as records carry it."""
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
    )
