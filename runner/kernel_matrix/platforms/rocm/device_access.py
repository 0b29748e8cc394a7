"""Ways to give a process exactly one AMD GPU: CDI, or plain device nodes.

A process that computes needs two nodes: the render node of its GPU, and ``/dev/kfd``, which is one for all GPUs. The
driver lets it use a GPU only if it can open that GPU's render node. The driver's libraries for user space come with
the image or with PyTorch.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernel_matrix.platforms import NO_ACCESS, DeviceAccess, Gpu
from kernel_matrix.platforms.container_ways import CDI, DEVICES, cdi_names, cdi_specifications, takes_cdi_requests

VISIBLE = "ROCR_VISIBLE_DEVICES"
"""Variable that selects GPUs in AMD's runtime, by UUID or by number; an empty one hides all."""

_KIND = "amd.com/gpu"
_DEV = Path("/dev")
_SYS = Path("/sys")
_FOR_GROUP, _FOR_ALL = stat.S_IRGRP | stat.S_IWGRP, stat.S_IROTH | stat.S_IWOTH
_ROOT_GROUP = 0  # never given to a candidate: too many files of a host belong to it


def container_access(info: Mapping[str, Any], gpu: Gpu | None = None) -> DeviceAccess:
    """Return the best way of the daemon: CDI, else plain device nodes."""
    if gpu is None:
        listed = takes_cdi_requests(info) and any(name.startswith(f"{_KIND}=") for name in cdi_names(info) or ())
        has_driver = (_DEV / "kfd").exists()
        return DeviceAccess(way=CDI if listed else DEVICES if has_driver else NO_ACCESS)
    nodes = device_nodes(gpu)
    name = _cdi_name(info, gpu) if takes_cdi_requests(info) else ""
    if name:  # a specification names the nodes, but not always their groups
        return DeviceAccess(way=CDI, requests=({"driver": "cdi", "device_ids": [name]},), groups=groups_of(nodes))
    if not nodes:
        return DeviceAccess(image_has_libraries=True)
    return DeviceAccess(way=DEVICES, nodes=nodes, groups=groups_of(nodes), image_has_libraries=True)


def process_access(gpu: Gpu) -> DeviceAccess:
    """Return the nodes of ``gpu`` and what the runtime reads about them, and the variable that selects it."""
    nodes = device_nodes(gpu)
    return DeviceAccess(
        way=DEVICES,
        nodes=nodes,
        groups=groups_of(nodes),
        system_files=tuple(_system_files(gpu)),
        environment={VISIBLE: runtime_uuid(gpu) or "0"},  # the only one that can be opened is number 0
    )


def device_nodes(gpu: Gpu) -> tuple[str, ...]:
    """Return the device nodes that ``gpu`` needs; empty if one of them is missing."""
    names = ("kfd", f"dri/renderD{gpu.minor}")
    nodes = tuple(str(_DEV / name) for name in names)
    return nodes if all(map(os.path.exists, nodes)) else ()


def groups_of(nodes: Iterable[str]) -> tuple[int, ...]:
    """Return the numbers of the groups whose members, and not all users, may use ``nodes``."""
    states = (Path(node).stat() for node in nodes)
    return tuple(sorted({state.st_gid for state in states if not _is_for_all(state) and _is_for_group(state)}))


def closed_nodes(nodes: Iterable[str]) -> tuple[str, ...]:
    """Return those of ``nodes`` that a process which is not root cannot use, whichever groups it is given."""
    states = {node: Path(node).stat() for node in nodes}
    return tuple(node for node, state in states.items() if not _is_for_all(state) and not _is_for_group(state))


def runtime_uuid(gpu: Gpu) -> str:
    """Return the name of ``gpu`` in AMD's runtime, ``GPU-`` and 16 digits; empty if the driver reports none.

    It is made of the driver's ``unique_id``. The UUID of the management library is another one.
    """
    for file in sorted((_SYS / "class/kfd/kfd/topology/nodes").glob("*/properties")):
        with suppress(OSError, ValueError):  # the driver refuses nodes to processes that may not use them
            properties = dict(line.split(maxsplit=1) for line in file.read_text(encoding="ascii").splitlines())
            if int(properties.get("drm_render_minor", 0)) == gpu.minor and int(properties.get("unique_id", 0)):
                return f"GPU-{int(properties['unique_id']):016x}"
    return ""


def _is_for_all(state: os.stat_result) -> bool:
    return state.st_mode & _FOR_ALL == _FOR_ALL


def _is_for_group(state: os.stat_result) -> bool:
    return state.st_mode & _FOR_GROUP == _FOR_GROUP and state.st_gid != _ROOT_GROUP


def _system_files(gpu: Gpu) -> Iterator[str]:
    """Yield the folders in which the runtime looks for GPUs, and that of ``gpu`` itself."""
    device = (_SYS / f"class/drm/renderD{gpu.minor}/device").resolve()
    for folder in (_SYS / "class/kfd", _SYS / "devices/virtual/kfd", _SYS / "dev/char", device):
        if folder.exists():
            yield str(folder)


def _cdi_name(info: Mapping[str, Any], gpu: Gpu) -> str:
    """Return the name of the CDI device that has the render node of ``gpu`` and no other; empty if there is none.

    AMD's tool names devices by their position in its own list, so that only their nodes tell which one is meant.
    """
    own, listed = f"renderD{gpu.minor}", cdi_names(info)
    for text in cdi_specifications(info):
        for name, nodes in _specified_devices(text):
            if nodes == {own} and (listed is None or name in listed):
                return name
    return ""


def _specified_devices(text: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each device of a specification in JSON, which AMD's tool writes, with its render nodes."""
    with suppress(ValueError, TypeError, AttributeError, KeyError):  # another vendor's, or not as the tool writes it
        document = json.loads(text)
        for device in document["devices"] if document["kind"] == _KIND else ():
            paths = [node["path"] for node in device["containerEdits"]["deviceNodes"]]
            renders = {path.rpartition("/")[2] for path in paths if "/renderD" in path}
            yield f"{_KIND}={device['name']}", renders
