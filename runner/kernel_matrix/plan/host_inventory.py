"""Properties of a host that determine which cells can run there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache

from kernel_matrix.matrix import GpuAxis, Toolchain
from kernel_matrix.platforms import Gpu, group_of
from kernel_matrix.platforms.links import group_link, has_peer_access, link_rank
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

    All groups have the best kind of link that a group can have here in all of its pairs, so that the results of a cell
    are of one kind of link. In the order of indices, each device takes the first ones that are so linked to it and to
    each other, and can access each other's memory; devices that are left over are in no group.
    """
    if ranks == 1 or not get_platform(axis.platform).IS_ACCELERATOR:
        return devices_matching(axis, gpus)
    return _best_groups(axis, gpus, ranks)


def linked_by(groups: tuple[Gpu, ...]) -> str | None:
    """Return the kind of link that all of these groups have; ``None`` for single devices, and if it is not known."""
    link = group_link(groups[0].devices) if groups else None
    return None if link is None else link.kind


@lru_cache
def _best_groups(axis: GpuAxis, gpus: tuple[Gpu, ...], ranks: int) -> tuple[Gpu, ...]:
    """Search groups with the best kind of link; kept, since the search is slow and every cell asks."""
    kinds = get_platform(axis.platform).LINK_KINDS
    weakest = len(kinds) if axis.link is None else kinds.index(axis.link)
    matching = devices_matching(axis, gpus)
    found = (_groups(matching, ranks, most) for most in range(weakest + 1))
    return next(filter(None, found), ())


def _groups(gpus: tuple[Gpu, ...], ranks: int, weakest: int) -> tuple[Gpu, ...]:
    """Return groups in which no link has a kind beyond position ``weakest`` of the platform's kinds."""
    left, groups = sorted(gpus, key=lambda gpu: gpu.index), []
    while left:
        group = _completed((left[0],), tuple(left[1:]), ranks, weakest)
        groups += [] if group is None else [group_of(group)]
        left = [gpu for gpu in left[1:] if group is None or gpu not in group]
    return tuple(groups)


def _completed(group: tuple[Gpu, ...], others: tuple[Gpu, ...], ranks: int, weakest: int) -> tuple[Gpu, ...] | None:
    """Return the first group of so many ranks that ``group`` and some of ``others`` make; ``None`` if there is none."""
    if len(group) == ranks:
        return group
    fitting = tuple(
        other
        for other in others
        if link_rank(other, group_link((group[-1], other))) <= weakest and has_peer_access(group[-1], other)
    )
    tried = (_completed((*group, other), fitting[i + 1 :], ranks, weakest) for i, other in enumerate(fitting))
    return next((found for found in tried if found is not None), None)


def _matches(axis: GpuAxis, gpu: Gpu) -> bool:
    return (
        axis.platform == gpu.platform
        and (axis.model is None or fnmatchcase(gpu.name.lower(), axis.model.lower()))
        and axis.uuid in (None, gpu.uuid)
        and gpu.uuid not in axis.without
        and axis.compute_capability in (None, gpu.compute_capability)
        and (axis.min_memory_gib is None or gpu.memory_bytes >= axis.min_memory_gib * GIB)
    )
