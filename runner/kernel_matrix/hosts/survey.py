"""Survey of this host: its devices, the sandbox to use, and the pinned images that are present."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernel_matrix.environments import PythonEnvironment
from kernel_matrix.environments.inspection import read_environment
from kernel_matrix.errors import (
    NEXT_STEP,
    ImageError,
    InfrastructureError,
    PythonEnvironmentError,
    UsageError,
    suggestion,
)
from kernel_matrix.hosts.code_versions import measurement_version
from kernel_matrix.images import ResolvedImage
from kernel_matrix.matrix import Matrix, Toolchain
from kernel_matrix.plan import Cell, HostInventory, devices_matching
from kernel_matrix.platforms.permission import why_forbidden, why_not_root
from kernel_matrix.platforms.registry import PLATFORMS, get_platform, host_inventory, platforms
from kernel_matrix.sandboxes import SANDBOXES, Sandbox, SandboxStatus, open_sandbox

ENVIRONMENT = "environment"
"""State of an environment in place of an image."""

Conditions = Mapping[tuple[str, str | None, str], AbstractSet[str | None]]
"""Sandbox, id of the image and measurement version → drivers of the devices there; ``None``: it has no driver."""

AUTO = "auto"
"""Docker, then unpacked images, if they have an image that this matrix can run here; else local processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSurvey:
    """Sandbox, devices and images that cells can use on this host."""

    sandbox: Sandbox
    status: SandboxStatus
    inventory: HostInventory
    images: Mapping[str, ResolvedImage]
    """Toolchain → the image to start, or the environment to run, if it is present."""

    def conditions(self, cell: Cell) -> Conditions:
        """Return what ``cell`` would meet here."""
        image = self.images.get(cell.toolchain.name)
        return conditions(cell, self.inventory, None if image is None else image.id)

    def devices(self, cell: Cell) -> Collection[str]:
        """Return the UUIDs of the devices that ``cell`` can run on."""
        return {gpu.uuid for gpu in devices_matching(cell.gpu, self.inventory.gpus)}


def check_sandbox(name: str) -> None:
    """Raise unless ``name`` is ``auto`` or the registry key of a sandbox.

    Raises:
        UsageError: if no sandbox has that name.
    """
    if name not in (AUTO, *SANDBOXES):
        allowed = (AUTO, *SANDBOXES)
        raise UsageError(
            f"unknown sandbox {name!r}{suggestion(name, allowed)}", next_step=f"allowed: {', '.join(allowed)}"
        )


def conditions(cell: Cell, inventory: HostInventory, image_id: str | None) -> Conditions:
    """Return what ``cell`` would meet on a host with this inventory, where its toolchain's image has this id."""
    here = (inventory.sandbox, image_id, measurement_version(cell.gpu.platform))
    return {here: {gpu.driver for gpu in devices_matching(cell.gpu, inventory.gpus)}}


def survey(
    matrix: Matrix, *, sandbox: str = AUTO, lock_path: Path | None = None, allow_unpinned: bool = False
) -> HostSurvey:
    """Find out what this host can run of ``matrix``.

    Args:
        matrix: the matrix to run.
        sandbox: ``auto``, or the registry key of a sandbox.
        lock_path: the image lock; ``None`` for the one of the matrix.
        allow_unpinned: accept images that are not the ones in the lock.

    Raises:
        UsageError: if no sandbox has that name.
        InfrastructureError: if the chosen sandbox cannot be used here.
    """
    check_sandbox(sandbox)
    lock_path = lock_path or matrix.lock_path
    if sandbox != AUTO:
        chosen = _survey_with(sandbox, matrix, lock_path, allow_unpinned=allow_unpinned, sandbox_reason="")
        if not chosen.status.available:
            reason, _arrow, next_step = chosen.status.reason.partition(NEXT_STEP)
            what = f"sandbox {sandbox} cannot be used: {reason}"
            raise InfrastructureError(what, next_step=next_step or "let the runner choose: --sandbox auto")
        return chosen
    tried: list[HostSurvey] = []
    for name in SANDBOXES.usable():
        reason = "; ".join(_reason_unused(matrix, found) for found in tried)
        tried.append(_survey_with(name, matrix, lock_path, allow_unpinned=allow_unpinned, sandbox_reason=reason))
        if tried[-1].status.available and _can_run_something(matrix, tried[-1]):
            return tried[-1]
    # Nothing of this matrix can run here, but planning it for other machines must still work.
    names_images = not all(toolchain.environment for toolchain in matrix.toolchains)
    may_plan = (found for found in tried if found.status.available and (names_images or not found.sandbox.uses_images))
    return next(may_plan, tried[-1])


def _survey_with(
    name: str, matrix: Matrix, lock_path: Path, *, allow_unpinned: bool, sandbox_reason: str
) -> HostSurvey:
    sandbox = open_sandbox(name)
    status = sandbox.status()
    images: Mapping[str, ResolvedImage | str] = {}
    if status.available:
        pinned = sandbox.uses_images
        images = _images(name, matrix, lock_path, allow_unpinned=allow_unpinned) if pinned else _environments(matrix)
    inventories = host_inventory()
    asked = {gpu.platform for gpu in matrix.gpus}
    missing = (found.reason for name, found in inventories.items() if name in asked)
    inventory = HostInventory(
        gpus=tuple(gpu for inventory in inventories.values() for gpu in inventory.gpus),
        gpu_reason="; ".join(filter(None, (*missing, *PLATFORMS.faults()))),
        sandbox=name,
        uses_images=sandbox.uses_images,
        own_network=status.own_network,
        sandbox_reason=sandbox_reason,
        local_torch=installed("torch"),
        local_triton=installed("triton"),
        images={name: image if isinstance(image, str) else "" for name, image in images.items()},
        environments=_known(matrix, images),
        compilers=tuple(name for name, platform in platforms().items() if platform.local_compiler()),
        clocks_reason=why_forbidden() or why_not_root(),
    )
    here = {name: image for name, image in images.items() if isinstance(image, ResolvedImage)}
    return HostSurvey(sandbox=sandbox, status=status, inventory=inventory, images=here)


def _images(sandbox: str, matrix: Matrix, lock_path: Path, *, allow_unpinned: bool) -> dict[str, ResolvedImage | str]:
    """Return toolchain → its image, or the reason why the image cannot be used."""
    # Only where images are used.
    from kernel_matrix.images.lock import load_lock  # noqa: PLC0415
    from kernel_matrix.images.resolve import resolve_image  # noqa: PLC0415
    from kernel_matrix.images.stores import open_store  # noqa: PLC0415

    entries = load_lock(lock_path) if lock_path.exists() else {}
    found: dict[str, ResolvedImage | str] = {}
    with open_store(sandbox) as store:
        for toolchain in matrix.toolchains:
            if toolchain.environment:
                continue
            name = toolchain.name
            try:
                found[name] = resolve_image(entries.get(name), name, store=store, allow_unpinned=allow_unpinned)
            except ImageError as error:
                found[name] = " ".join(str(error).split())
    return found


def _environments(matrix: Matrix) -> dict[str, ResolvedImage | str]:
    """Return toolchain → its environment, or the reason why it cannot be used, for toolchains that are environments."""
    found: dict[str, ResolvedImage | str] = {}
    for toolchain in matrix.toolchains:
        if toolchain.environment:
            try:
                found[toolchain.name] = _resolved(toolchain.name, read_toolchain(toolchain))
            except PythonEnvironmentError as error:
                found[toolchain.name] = " ".join(str(error).split())
    return found


def read_toolchain(toolchain: Toolchain) -> PythonEnvironment:
    """Describe the environment of ``toolchain``.

    Raises:
        PythonEnvironmentError: It cannot be used, or its PyTorch is not built for the platform that the matrix names.
    """
    found = read_environment(toolchain.environment)
    wanted = toolchain.platform
    if wanted and wanted not in found.torch_builds and get_platform(wanted).IS_ACCELERATOR:
        what = f"PyTorch {found.distributions['torch']} in {found.prefix} is not built for {wanted}"
        raise PythonEnvironmentError(what, next_step="install a build for it, or name another environment")
    return found


def _resolved(toolchain: str, environment: PythonEnvironment) -> ResolvedImage:
    return ResolvedImage(
        toolchain=toolchain,
        reference=environment.prefix,
        id=environment.digest,
        repo_digest=None,
        store=ENVIRONMENT,
        state=ENVIRONMENT,
        environment=environment,
    )


def _known(matrix: Matrix, images: Mapping[str, ResolvedImage | str]) -> dict[str, Toolchain]:
    """Return the toolchains that are environments of this host, with their platforms and versions."""
    found: dict[str, Toolchain] = {}
    for toolchain in matrix.toolchains:
        image = images.get(toolchain.name)
        if isinstance(image, ResolvedImage) and image.environment is not None:
            found[toolchain.name] = with_environment(toolchain, image.environment)
    return found


def with_environment(toolchain: Toolchain, environment: PythonEnvironment) -> Toolchain:
    """Return ``toolchain`` with the versions of its environment.

    A platform that the matrix does not name is the one that PyTorch was built for.
    """
    builds = environment.torch_builds
    built_for = next((name for name in PLATFORMS if name in builds), "cpu")
    known = replace(toolchain, platform=toolchain.platform or built_for)
    return known.with_versions({"torch": environment.torch, "triton": environment.triton, **builds})


def _can_run_something(matrix: Matrix, found: HostSurvey) -> bool:
    """Return whether this host has a device and a usable toolchain of the same platform."""
    present = {axis.platform for axis in matrix.gpus if devices_matching(axis, found.inventory.gpus)}
    known = found.inventory.environments
    runnable = {
        known.get(toolchain.name, toolchain).platform
        for toolchain in matrix.toolchains
        if toolchain.name in found.images or not (found.sandbox.uses_images or toolchain.environment)
    }
    return bool(present & runnable)


def _reason_unused(matrix: Matrix, found: HostSurvey) -> str:
    """Return the reason why this sandbox is not used."""
    if not found.status.available:
        return found.status.reason
    images = [toolchain.name for toolchain in matrix.toolchains if not toolchain.environment]
    missing = ", ".join(name for name in images if name not in found.images)
    return f"{found.sandbox.name} answers, but has none of the pinned images that could run here ({missing})"


def why_no_torch() -> str:
    """Return why this program's own Python cannot run cells; empty if it can."""
    if installed("torch") is not None:
        return ""
    return f"torch is not installed for {sys.executable}; `pip install kernel-matrix[local]` brings it"


def installed(package: str) -> str | None:
    """Return the version of ``package`` in the runner's environment; ``None`` if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
