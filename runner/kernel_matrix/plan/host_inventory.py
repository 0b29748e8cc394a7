"""What a host has, as far as a plan must know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from kernel_matrix.matrix import GpuAxis
from kernel_matrix.platforms import Gpu

GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInventory:
    """Devices, sandbox, images and rights of one host. The default is a host that has nothing."""

    gpus: tuple[Gpu, ...] = ()
    gpu_reason: str = ""
    """Why devices are missing from ``gpus``, in words."""
    sandbox: str = "process"
    uses_images: bool = False
    """Whether the sandbox runs toolchains from images; without, only what is installed beside the runner can run."""
    sandbox_reason: str = ""
    """Why no sandbox with images is used, in words."""
    local_torch: str | None = None
    """Version of torch beside the runner; null where there is none."""
    local_triton: str | None = None
    images: Mapping[str, str] = field(default_factory=dict)
    """Toolchain → why its image cannot be used; empty text: it can. A toolchain that is absent has no image."""
    clocks_reason: str = "this host is not known"
    """Why GPU clocks cannot be locked here, in words; empty: nothing speaks against it."""


def devices_matching(axis: GpuAxis, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The devices that are this value of the ``gpus`` axis: all conditions it names hold."""
    return tuple(gpu for gpu in gpus if _matches(axis, gpu))


def _matches(axis: GpuAxis, gpu: Gpu) -> bool:
    return (
        axis.platform == gpu.platform
        and (axis.model is None or fnmatchcase(gpu.name.lower(), axis.model.lower()))
        and axis.uuid in (None, gpu.uuid)
        and axis.compute_capability in (None, gpu.compute_capability)
        and (axis.min_memory_gib is None or gpu.memory_bytes >= axis.min_memory_gib * GIB)
    )
