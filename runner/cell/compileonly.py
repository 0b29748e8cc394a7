"""A cell that is only compiled, for a GPU that this host need not have: what comes out, and could it be launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runner.cell.assignment import Assignment, Bench, CellCancelledError, Ran
from runner.cell.buildcache import BuildCache, default_cache
from runner.cell.building import Build, BuildCancelledError
from runner.cell.compiling import build_for
from runner.cell.course import Course
from runner.cell.findings import rejected, scan_of
from runner.cell.hosthalf import DeviceHalf, cell_key, host_half
from runner.cell.settling import machine_failed, outcome_of
from runner.cell.specs import Place
from runner.compat import compatibility
from runner.core.messages import Evidence
from runner.core.vocab import Stage, Status
from runner.engines import Labels
from runner.errors import InfrastructureError
from runner.gpus import Gpu
from runner.matrix import GpuAxis
from runner.plan import Cell
from runner.results.record import BuildSeen, KernelBuilt, Outcome, Record

_LONGEST = 500
"""Longest message, characters."""
_ONLY_WHERE_IT_RUNS = "what the source compiles is only known once it runs on a device"


def absent_gpu(axis: GpuAxis) -> Gpu:
    """What stands for a GPU that need not be here: its kind, and nothing to run on."""
    return Gpu(
        vendor=axis.vendor,
        uuid=f"absent:{axis.name}",
        name=axis.model or axis.name,
        compute_capability=axis.compute_capability,
    )


def compile_only(assignment: Assignment, bench: Bench, cache: BuildCache | None = None) -> Ran:
    """Build the candidate and say what came of it; neither lease nor device is involved.

    :param assignment: its device names what to compile for, see :func:`absent_gpu`; its build is made here.
    :param cache: null: this user's.
    :raises CellCancelledError: when the bench's run was called off meanwhile.
    """
    course, cell = Course(), assignment.cell
    try:
        course.scan = scan_of(cell)
        outcome = rejected(cell, course.scan)
        if outcome is None:
            build = _build(assignment, bench, cache or default_cache())
            assignment = replace(assignment, build=build)
            course.phases["build"] = build.seconds
            course.saw_ends(build.exits, 0)
            outcome = build.outcome or _outcome(build)
    except (InfrastructureError, OSError) as error:
        outcome = machine_failed(error, Stage.BUILD)
    record = Record(
        run_id=bench.run_id,
        cell_id=cell.id,
        attempt=assignment.attempt,
        cell=cell_key(cell),
        outcome=outcome,
        host=host_half(assignment, bench, DeviceHalf(), course),
        sessions=(),
    )
    return Ran(record=record, trace=None)


def _build(assignment: Assignment, bench: Bench, cache: BuildCache) -> Build:
    cell = assignment.cell
    labels = Labels(run_id=bench.run_id, cell_id=cell.id, session=0, gpu_uuid="", owner=bench.owner)
    place = Place(cell=cell, gpu=assignment.gpu, image=assignment.image, labels=labels)
    try:
        build = build_for(place, bench, cache)
    except BuildCancelledError:
        raise CellCancelledError from None
    return build if build.seen is None else replace(build, seen=_for_dtype(build.seen, cell))


def _outcome(build: Build) -> Outcome:
    kernels = build.seen.kernels if build.seen is not None else ()
    if not kernels:
        message = f"no kernel was compiled: {_last_line(build.log_tail) or _ONLY_WHERE_IT_RUNS}"
        return outcome_of(Status.UNSUPPORTED, Stage.BUILD, Evidence(message=message[:_LONGEST], log=build.log_tail))
    message = "; ".join((_counted(kernels), *_obstacles(kernels)))
    return outcome_of(Status.COMPILED, Stage.BUILD, Evidence(message=message[:_LONGEST], log=build.log_tail))


def _last_line(log: str) -> str:
    return next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")


def _counted(kernels: Sequence[KernelBuilt]) -> str:
    refused = sum(not kernel.launchable for kernel in kernels)
    made = f"{len(kernels)} kernel{'s' * (len(kernels) != 1)} compiled"
    return f"{made}, {refused} of them could not be launched" if refused else made


def _obstacles(kernels: Sequence[KernelBuilt]) -> list[str]:
    return list(dict.fromkeys(f"{kernel.name}: {kernel.reason}" for kernel in kernels if not kernel.launchable))


def _for_dtype(seen: BuildSeen, cell: Cell) -> BuildSeen:
    """``seen``, with every kernel refused where the architecture cannot compute in the cell's dtype."""
    why = compatibility().dtype_obstacle(
        dtype=cell.dtype,
        language=cell.candidate.language,
        vendor=cell.gpu.vendor,
        compute_capability=cell.gpu.compute_capability,
    )
    if not why:
        return seen
    kernels = (replace(k, launchable=False, reason=why) if k.launchable else k for k in seen.kernels)
    return replace(seen, kernels=tuple(kernels))
