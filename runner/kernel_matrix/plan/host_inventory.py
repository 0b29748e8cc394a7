"""Properties of a host that determine which cells can run there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from kernel_matrix.matrix import GpuAxis, Toolchain
from kernel_matrix.platforms import Gpu, group_of
from kernel_matrix.platforms.registry import get_platform

GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInventory:
    """Devices, sandbox, images and rights of one host. The default is a host that has nothing."""

    gpus: tuple[Gpu, ...] = ()
    gpu_reason: str = ""
    """Reason why devices are missing from ``gpus``."""
    sandbox: str = "process"
    uses_images: bool = False
    """``True`` if the sandbox runs toolchains from images; else only toolchains installed beside the runner can run."""
    own_network: bool = True
    """The sandbox gives processes a network of their own, which a problem with several ranks needs."""
    sandbox_reason: str = ""
    """Reason why no sandbox with images is used."""
    local_torch: str | None = None
    """Version of torch beside the runner; ``None`` if there is none."""
    local_triton: str | None = None
    images: Mapping[str, str] = field(default_factory=dict)
    """Toolchain → reason why its image or environment cannot be used; empty if it can. An absent one has none."""
    environments: Mapping[str, Toolchain] = field(default_factory=dict)
    """Name of a toolchain that is an environment of this host → the toolchain with its platform and versions."""
    compilers: tuple[str, ...] = ()
    """Platforms whose compiler is installed on this host, for environments."""
    clocks_reason: str = "this host is not known"
    """Reason why GPU clocks cannot be locked here; empty if there is none."""


def devices_matching(axis: GpuAxis, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Return the devices that satisfy all conditions of ``axis``, a value of the ``gpus`` axis."""
    return tuple(gpu for gpu in gpus if _matches(axis, gpu))


def groups_matching(axis: GpuAxis, gpus: tuple[Gpu, ...], ranks: int) -> tuple[Gpu, ...]:
    """Return what a problem with so many ranks can run on: devices, or groups with a device for each rank.

    Devices are grouped in the order of their indices; a rest that is too small for a group is left out.
    """
    matching = devices_matching(axis, gpus)
    if ranks == 1 or not any(get_platform(gpu.platform).IS_ACCELERATOR for gpu in matching):
        return matching
    ordered = sorted(matching, key=lambda gpu: gpu.index)
    return tuple(group_of(ordered[start : start + ranks]) for start in range(0, len(ordered) - ranks + 1, ranks))


def _matches(axis: GpuAxis, gpu: Gpu) -> bool:
    return (
        axis.platform == gpu.platform
        and (axis.model is None or fnmatchcase(gpu.name.lower(), axis.model.lower()))
        and axis.uuid in (None, gpu.uuid)
        and gpu.uuid not in axis.without
        and axis.compute_capability in (None, gpu.compute_capability)
        and (axis.min_memory_gib is None or gpu.memory_bytes >= axis.min_memory_gib * GIB)
    )
