"""Cells that are only compiled, for a GPU that this host need not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernel_matrix.attempt.assignment import Assignment, AttemptResult, CellCancelledError, RunContext
from kernel_matrix.attempt.attempt_log import AttemptLog
from kernel_matrix.attempt.buildcache import BuildCache, default_cache
from kernel_matrix.attempt.building import BuildCancelledError, BuildResult
from kernel_matrix.attempt.candidate_build import build_for
from kernel_matrix.attempt.host_record import DeviceRecord, cell_key, make_host_record
from kernel_matrix.attempt.outcome import machine_failed, outcome_of
from kernel_matrix.attempt.role_specs import CellPlacement
from kernel_matrix.attempt.source_findings import code_of, rejected, scan_of
from kernel_matrix.errors import InfrastructureError
from kernel_matrix.matrix import GpuAxis
from kernel_matrix.model.enums import Stage, Status
from kernel_matrix.model.messages import Evidence
from kernel_matrix.plan import Cell
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.results.record import BuildInfo, CompiledKernelInfo, Outcome, Record
from kernel_matrix.sandboxes import ProcessLabels

_MAX_MESSAGE = 500  # characters
_NO_KERNELS_AT_IMPORT = "the kernels of this source are only known once it runs on a device"


def absent_gpu(axis: GpuAxis) -> Gpu:
    """Make a stand-in for a GPU that need not be installed: its properties, but no device."""
    return Gpu(
        platform=axis.platform,
        uuid=f"absent:{axis.name}",
        name=axis.model or axis.name,
        compute_capability=axis.compute_capability,
    )


def compile_only(
    assignment: Assignment, context: RunContext, cache: BuildCache | None = None, *, beside_sessions: bool = False
) -> AttemptResult:
    """Build the candidate and return its record, without a lease or a device.

    The assignment's device is the one to compile for, see :func:`absent_gpu`. Without a ``cache``, this user's is used.
    With ``beside_sessions`` the builder gives way to sessions on accelerators.

    Raises:
        CellCancelledError: If the run was cancelled meanwhile.
    """
    log, cell = AttemptLog(), assignment.cell
    try:
        log.scan, log.code = scan_of(cell), code_of(cell)
        outcome = rejected(cell, log.scan)
        if outcome is None:
            build = _build(assignment, context, cache or default_cache(), beside_sessions=beside_sessions)
            assignment = replace(assignment, build=build)
            log.phases["build"] = build.seconds
            log.saw_ends(build.exits, 0)
            outcome = build.outcome or _outcome(build)
    except (InfrastructureError, OSError) as error:
        outcome = machine_failed(error, Stage.BUILD)
    record = Record(
        run_id=context.run_id,
        cell_id=cell.id,
        attempt=assignment.attempt,
        cell=cell_key(cell),
        outcome=outcome,
        host=make_host_record(assignment, context, DeviceRecord(), log),
        sessions=(),
    )
    return AttemptResult(record=record, trace=None)


def _build(assignment: Assignment, context: RunContext, cache: BuildCache, *, beside_sessions: bool) -> BuildResult:
    cell = assignment.cell
    labels = ProcessLabels(run_id=context.run_id, cell_id=cell.id, session=0, gpu_uuid="", owner=context.owner)
    place = CellPlacement(
        cell=cell, gpu=assignment.gpu, image=assignment.image, labels=labels, beside_sessions=beside_sessions
    )
    try:
        build = build_for(place, context, cache)
    except BuildCancelledError:
        raise CellCancelledError from None
    return build if build.seen is None else replace(build, seen=_for_dtype(build.seen, cell))


def _outcome(build: BuildResult) -> Outcome:
    kernels = build.seen.kernels if build.seen is not None else ()
    if not kernels:
        message = f"no kernel was compiled: {_last_line(build.log_tail) or _NO_KERNELS_AT_IMPORT}"
        return outcome_of(Status.UNSUPPORTED, Stage.BUILD, Evidence(message=message[:_MAX_MESSAGE], log=build.log_tail))
    reasons = dict.fromkeys(f"{kernel.name}: {kernel.reason}" for kernel in kernels if not kernel.launchable)
    message = "; ".join((_counted(kernels), *reasons))
    return outcome_of(Status.COMPILED, Stage.BUILD, Evidence(message=message[:_MAX_MESSAGE], log=build.log_tail))


def _last_line(log: str) -> str:
    return next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")


def _counted(kernels: Sequence[CompiledKernelInfo]) -> str:
    refused = sum(not kernel.launchable for kernel in kernels)
    made = f"{len(kernels)} kernel{'s' * (len(kernels) != 1)} compiled"
    return f"{made}, {refused} of them could not be launched" if refused else made


def _for_dtype(seen: BuildInfo, cell: Cell) -> BuildInfo:
    """Return ``seen`` with every kernel refused if the architecture cannot compute in the cell's dtype."""
    platform = get_platform(cell.gpu.platform)
    why = platform.dtype_skip_reason(cell.dtype, cell.candidate.language, cell.gpu.compute_capability)
    if not why:
        return seen
    kernels = (replace(k, launchable=False, reason=why) if k.launchable else k for k in seen.kernels)
    return replace(seen, kernels=tuple(kernels))
