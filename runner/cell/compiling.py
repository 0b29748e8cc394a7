"""From a cell to its build: what determines the artefact, whether it is at hand already, and compiling it if not."""

from __future__ import annotations

import functools
import json
import platform
import sys
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from runner.cell.assignment import Bench
from runner.cell.buildcache import BuildCache, Kept, Recipe, file_sha256
from runner.cell.building import Build, run_build
from runner.cell.contestants import NEEDS_BUILD
from runner.cell.specs import Place, arch_list, builder_spec
from runner.core.nvcc import find_nvcc
from runner.core.vocab import Language
from runner.core.wire import KernelCode
from runner.gpus import Gpu
from runner.host import core_sha256
from runner.plan import Cell
from runner.plan.limits import launch_obstacle, limits_of
from runner.results.record import BuildSeen, KernelBuilt


def is_built(cell: Cell, gpu: Gpu) -> bool:
    """Whether anything of ``cell`` is compiled before a device is leased for it.

    Triton would compile at its first call, while the device waits; on a CPU it compiles nothing. It does so, too, where
    the problem reads files: whoever compiles ahead is told the problem's module alone.
    """
    language = cell.candidate.language
    return language in NEEDS_BUILD or (language is Language.TRITON and gpu.vendor != "cpu" and not cell.problem.beside)


def build_for(place: Place, bench: Bench, cache: BuildCache) -> Build:
    """What compiling the cell's candidate for the place's device comes to, from ``cache`` where it is known there.

    :raises BuildCancelledError: when the run was called off.
    :raises runner.errors.InfrastructureError: when the builder could not be started.
    :raises OSError: when the source cannot be read, or a file cannot be written.
    """
    recipe = _recipe(place)
    kept = cache.recall(recipe.key, bench.scratch)
    if kept is not None:
        return _from_cache(kept, recipe)
    build = _compile(place, bench, recipe)
    seen = _seen(recipe, build.kernels, build.log_tail)
    if build.artifact is not None:
        cache.keep(recipe.key, build.artifact, build.kernels, build.log_tail)
        seen = replace(seen, artifact_sha256=file_sha256(build.artifact))
    return replace(build, seen=replace(seen, seconds=build.seconds))


def _recipe(place: Place) -> Recipe:
    cell = place.cell
    return Recipe(
        source=cell.candidate.code.module(),
        beside=cell.candidate.code.contents(),
        arch=arch_list(place.gpu),
        toolchain=place.image_id or _local_toolchain(),
        core=core_sha256(),
        order=_order(place) if cell.candidate.language is Language.TRITON else b"",
    )


def _order(place: Place) -> bytes:
    """For what calls and for what device kernels are compiled ahead; see :mod:`runner.core.build`."""
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
    """What to compile for, and what a candidate is told that asks the device what it has."""
    limits = limits_of(gpu.compute_capability or "")
    known = {} if limits is None else {"shared_bytes": limits.shared_bytes, "multiprocessors": limits.multiprocessors}
    return {"arch": arch_list(gpu), **known}


@functools.cache
def _local_toolchain() -> str:
    """What tells the compilers beside this program apart from others, and from themselves after an update."""
    nvcc = find_nvcc()
    compiler = (str(Path(nvcc).resolve()), Path(nvcc).stat().st_mtime_ns) if nvcc else None
    return json.dumps([sys.prefix, platform.python_version(), _installed("torch"), _installed("triton"), compiler])


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _compile(place: Place, bench: Bench, recipe: Recipe) -> Build:
    policy = place.cell.policy
    return run_build(
        bench.engine,
        functools.partial(builder_spec, place),
        recipe.source,
        order=recipe.order,
        beside=recipe.beside,
        keep_in=bench.scratch,
        timeout_s=policy.build_timeout_s,
        max_bytes=policy.tmpfs_mib << 20,
        cancelled=bench.cancelled,
    )


def _from_cache(kept: Kept, recipe: Recipe) -> Build:
    seen = _seen(recipe, kept.kernels, kept.log_tail)
    return Build(
        artifact=kept.artifact,
        kernels=kept.kernels,
        log_tail=kept.log_tail,
        seen=replace(seen, cached=True, artifact_sha256=kept.artifact_sha256),
    )


def _seen(recipe: Recipe, kernels: tuple[KernelCode, ...], log_tail: str) -> BuildSeen:
    return BuildSeen(
        seconds=0.0,
        cached=False,
        key=recipe.key,
        arch=recipe.arch,
        artifact_sha256=None,
        kernels=tuple(_kernel(kernel) for kernel in kernels),
        log_tail=log_tail,
    )


def _kernel(kernel: KernelCode) -> KernelBuilt:
    why = launch_obstacle(arch=kernel.arch, registers=kernel.registers, shared_bytes=kernel.shared_bytes)
    return KernelBuilt(**asdict(kernel), launchable=not why, reason=why)
