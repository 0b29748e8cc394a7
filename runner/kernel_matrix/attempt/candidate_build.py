"""Build of a cell's candidate: the key of its artefact, its look-up in the cache, and the compilation."""

from __future__ import annotations

import functools
import json
import platform
import sys
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version

from kernel_matrix.attempt.assignment import RunContext
from kernel_matrix.attempt.buildcache import BuildCache, BuildKey, CachedArtifact
from kernel_matrix.attempt.building import BuildResult, run_build
from kernel_matrix.attempt.contestants import NEEDS_BUILD
from kernel_matrix.attempt.role_specs import CellPlacement, builder_spec
from kernel_matrix.file_hash import file_sha256
from kernel_matrix.hosts.code_versions import build_version
from kernel_matrix.inside.wire import KernelCode
from kernel_matrix.model.enums import Language
from kernel_matrix.plan import Cell
from kernel_matrix.platforms import Gpu, Platform
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.results.record import BuildInfo, CompiledKernelInfo


def is_built(cell: Cell, gpu: Gpu) -> bool:
    """Return whether anything of ``cell`` is compiled before a device is leased for it.

    Triton would compile at its first call, while the device waits; on a CPU it compiles nothing. It also compiles at
    the first call if the problem reads files, because the builder gets only the problem's module.
    """
    language = cell.candidate.language
    compiles_at_call = language is Language.TRITON and not get_platform(gpu.platform).interprets(language)
    return language in NEEDS_BUILD or (compiles_at_call and not cell.problem.extra_files)


def build_for(place: CellPlacement, context: RunContext, cache: BuildCache) -> BuildResult:
    """Return the result of compiling the cell's candidate for its device, from ``cache`` if possible.

    Raises:
        BuildCancelledError: The run was cancelled.
        kernel_matrix.errors.InfrastructureError: The builder could not be started.
        OSError: The source cannot be read, or a file cannot be written.
    """
    recipe = _recipe(place)
    kept = cache.recall(recipe.key, context.scratch)
    if kept is not None:
        return _from_cache(place, kept, recipe)
    build = _compile(place, context, recipe)
    seen = _describe_build(place, recipe, build.kernels, build.log_tail)
    if build.artifact is not None:
        cache.keep(recipe.key, build.artifact, build.kernels, build.log_tail)
        seen = replace(seen, artifact_sha256=file_sha256(build.artifact))
    return replace(build, seen=replace(seen, seconds=build.seconds))


def _recipe(place: CellPlacement) -> BuildKey:
    cell = place.cell
    return BuildKey(
        source=cell.candidate.code.module(),
        beside=cell.candidate.code.contents(),
        arch=place.platform.compile_target(place.gpu.compute_capability),
        toolchain=place.image_id or _local_toolchain(place.gpu.platform),
        build_version=build_version(place.gpu.platform),
        order=_order(place) if cell.candidate.language is Language.TRITON else b"",
    )


def _order(place: CellPlacement) -> bytes:
    """Return the calls and the device for which to compile ahead; see :mod:`kernel_matrix.inside.build.builder`."""
    cell = place.cell
    order = {
        "problem": cell.problem.code.module().decode(),
        "workloads": [dict(workload.values) for workload in cell.workloads],
        "dtype": cell.dtype.value,
        "entry": cell.candidate.entry,
        "target": _target(place.gpu),
    }
    return json.dumps(order, sort_keys=True).encode()


def _target(gpu: Gpu) -> dict[str, str | int]:
    """Return the device to compile for, with the properties that a candidate can query."""
    of, capability = get_platform(gpu.platform), gpu.compute_capability
    return {"arch": of.compile_target(capability), **of.compile_limits(capability)}


@functools.cache
def _local_toolchain(device_platform: str) -> str:
    """Return an identifier of the compilers beside this program, which an update changes."""
    compiler = get_platform(device_platform).local_compiler()
    return json.dumps([sys.prefix, platform.python_version(), _installed("torch"), _installed("triton"), compiler])


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _compile(place: CellPlacement, context: RunContext, recipe: BuildKey) -> BuildResult:
    policy = place.cell.policy
    return run_build(
        context.sandbox,
        functools.partial(builder_spec, place),
        recipe.source,
        order=recipe.order,
        beside=recipe.beside,
        keep_in=context.scratch,
        timeout_s=policy.build_timeout_s,
        max_bytes=policy.tmpfs_mib << 20,
        cancelled=context.cancelled,
    )


def _from_cache(place: CellPlacement, kept: CachedArtifact, recipe: BuildKey) -> BuildResult:
    seen = _describe_build(place, recipe, kept.kernels, kept.log_tail)
    return BuildResult(
        artifact=kept.artifact,
        kernels=kept.kernels,
        log_tail=kept.log_tail,
        seen=replace(seen, cached=True, artifact_sha256=kept.artifact_sha256),
    )


def _describe_build(
    place: CellPlacement, recipe: BuildKey, kernels: tuple[KernelCode, ...], log_tail: str
) -> BuildInfo:
    return BuildInfo(
        seconds=0.0,
        cached=False,
        key=recipe.key,
        arch=recipe.arch,
        artifact_sha256=None,
        kernels=tuple(_kernel(place.platform, kernel) for kernel in kernels),
        log_tail=log_tail,
    )


def _kernel(platform: Platform, kernel: KernelCode) -> CompiledKernelInfo:
    why = platform.launch_failure_reason(kernel)
    number = kernel.compute_capability.replace(".", "")
    return CompiledKernelInfo(
        **asdict(kernel),
        arch=int(number) if number.isdigit() else None,
        launchable=not why,
        reason=why,
        occupancy=platform.occupancy(kernel),
    )
