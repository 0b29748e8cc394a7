"""Ways to give a process exactly one GPU: CDI, the NVIDIA container toolkit, or plain device nodes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_matrix.platforms import NO_ACCESS, DeviceAccess, Gpu
from kernel_matrix.platforms.container_ways import (
    CDI,
    DEVICES,
    cdi_names,
    cdi_specifications,
    is_podman,
    takes_cdi_requests,
)

TOOLKIT = "toolkit"
"""The daemon's ``nvidia`` runtime adds the GPU."""

LIBRARY_TARGET = "/usr/local/nvidia"
LIBRARY_PATH = f"{LIBRARY_TARGET}/lib64:{LIBRARY_TARGET}/lib"
_DEV = Path("/dev")
_DRIVER_FOLDER = Path("/usr/local/nvidia")
_DRIVER_LIBRARY = re.compile(
    r"\s*(lib(?:cuda|cudadebugger|nvidia-[\w-]+)\.so[.\d]*) \(libc6,(?:x86-64|AArch64)[^)]*\) => (\S+)"
)


@dataclass(frozen=True, slots=True)
class DriverLibrary:
    """A folder or file of the driver, and its path inside."""

    source: Path
    target: str


def container_access(info: Mapping[str, Any], gpu: Gpu | None = None) -> DeviceAccess:
    """Return the best way of the daemon: CDI, then the toolkit's runtime, then plain device nodes."""
    way = way_into_containers(info, None if gpu is None else gpu.uuid)
    if gpu is None or way == NO_ACCESS:
        return DeviceAccess(way=way)
    if way == CDI:
        return DeviceAccess(way=way, requests=({"driver": "cdi", "device_ids": [f"nvidia.com/gpu={gpu.uuid}"]},))
    if way == TOOLKIT:
        request = {"device_ids": [gpu.uuid], "capabilities": [["gpu", "utility", "compute"]]}
        # If the NVIDIA runtime is the daemon's default one, it follows this variable and not the request.
        return DeviceAccess(way=way, requests=(request,), environment={"NVIDIA_VISIBLE_DEVICES": gpu.uuid})
    return DeviceAccess(
        way=way,
        nodes=device_nodes(gpu),
        libraries=tuple((str(library.source), library.target) for library in driver_libraries()),
        environment={"LD_LIBRARY_PATH": LIBRARY_PATH},
    )


def process_access(gpu: Gpu) -> DeviceAccess:
    """Return the device nodes of ``gpu``, and the variable that selects it in the driver."""
    environment = {"CUDA_VISIBLE_DEVICES": gpu.uuid, "LD_LIBRARY_PATH": LIBRARY_PATH}
    return DeviceAccess(way=DEVICES, nodes=device_nodes(gpu), environment=environment)


def way_into_containers(info: Mapping[str, Any], uuid: str | None = None) -> str:
    """Return the name of the way in which a daemon can give a GPU to a container.

    Args:
        info: the daemon's answer to ``/info``.
        uuid: UUID of the GPU; ``None`` for any GPU.
    """
    if takes_cdi_requests(info) and _listed_by_cdi(info, uuid):
        return CDI
    if not is_podman(info) and "nvidia" in (info.get("Runtimes") or {}):
        return TOOLKIT
    if (_DEV / "nvidiactl").exists():
        return DEVICES
    return NO_ACCESS


def _listed_by_cdi(info: Mapping[str, Any], uuid: str | None) -> bool:
    """Return whether CDI lists the GPU: a specification may be older than the GPUs that are installed now."""
    names = cdi_names(info)
    if names is not None:
        return any(name.startswith("nvidia.com/gpu=") and (uuid is None or name.endswith(uuid)) for name in names)
    return any("nvidia.com/gpu" in text and (uuid is None or uuid in text) for text in cdi_specifications(info))


def device_nodes(gpu: Gpu) -> tuple[str, ...]:
    """Return the existing device nodes that ``gpu`` needs."""
    own = f"nvidia{gpu.index if gpu.minor is None else gpu.minor}"
    names = (own, "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    return tuple(str(_DEV / name) for name in names if (_DEV / name).exists())


def driver_libraries() -> tuple[DriverLibrary, ...]:
    """Return the driver's user-space libraries of this host.

    They must have the version of the kernel module, so the libraries of an image are never used.
    """
    if (_DRIVER_FOLDER / "lib64").is_dir():
        return (DriverLibrary(_DRIVER_FOLDER, LIBRARY_TARGET),)
    try:
        listing = subprocess.run(("ldconfig", "-p"), capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    found = {match[1]: Path(match[2]).resolve() for match in map(_DRIVER_LIBRARY.match, listing.splitlines()) if match}
    return tuple(DriverLibrary(path, f"{LIBRARY_TARGET}/lib64/{name}") for name, path in sorted(found.items()))
