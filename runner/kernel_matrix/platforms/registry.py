"""Registry of platforms: the built-in ones, and those that other packages add as entry points."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Mapping
from dataclasses import asdict
from functools import reduce
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from kernel_matrix.errors import PluginError
from kernel_matrix.inside import platform_defaults
from kernel_matrix.inside.platform import InsidePlatform
from kernel_matrix.model.protocols import protocol_members
from kernel_matrix.platforms import DeviceAccess, Gpu, Platform, PlatformInventory
from kernel_matrix.plugins import Registry
from kernel_matrix.python_syntax import parse


def _load(entry: EntryPoint) -> Platform:
    """Import the host half of a platform, and check its inside half.

    Raises:
        PluginError: The inside half lacks a member of its protocol.
    """
    platform: Platform = entry.load()
    missing = _missing_inside(_inside_folder(platform) / "__init__.py")
    if missing:
        raise PluginError(f"its inside half lacks {', '.join(missing)}")
    return platform


def _missing_inside(file: Path) -> list[str]:
    """Return the members of the inside protocol that ``file`` does not define.

    The file is read and not imported, because it may import torch, which the host has not. What the file takes from
    elsewhere at run time is not known here; ``load_platform`` checks it in the sandbox.
    """
    source = file.read_bytes()
    symbols = symtable.symtable(source.decode(), str(file), "exec").get_symbols()
    defined = {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            if node.module != platform_defaults.__name__:
                return []
            defined.update(platform_defaults.__all__)
    return [member for member in protocol_members(InsidePlatform) if member not in defined]


def _inside_folder(platform: Platform) -> Path:
    return Path(str(platform.__file__)).resolve().parent / "inside"


PLATFORMS: Registry[Platform] = Registry(
    "platform",
    "kernel_matrix.platforms",
    {name: f"kernel_matrix.platforms.{name}" for name in ("cpu", "cuda", "rocm")},
    members=protocol_members(Platform),
    loader=_load,
)
"""Name → package."""

DEFAULT = "cuda"
"""Platform of a value of the ``gpus`` axis that names no platform."""


def get_platform(name: str) -> Platform:
    """Import the platform registered as ``name``.

    Raises:
        PluginError: There is none, it cannot be imported, or one of its halves lacks a member of its protocol.
    """
    return PLATFORMS.load(name)


def inside_folder(name: str) -> Path:
    """Return the folder of the inside half of the platform ``name``."""
    return _inside_folder(get_platform(name))


def platforms() -> Mapping[str, Platform]:
    """Return every platform that can be used, by name."""
    return PLATFORMS.usable()


def platform_name(text: str) -> str:
    """Return the registry key for the name of a platform or its vendor; another text is returned unchanged."""
    if text in PLATFORMS:
        return text
    return next((name for name, platform in platforms().items() if text == platform.VENDOR), text)


def host_inventory() -> dict[str, PlatformInventory]:
    """Return every platform's inventory of this host."""
    return {name: platform.inventory() for name, platform in platforms().items()}


def gpu_document(gpu: Gpu) -> dict[str, Any]:
    """Return ``gpu`` in the form of records, which name the vendor in place of the platform."""
    fields = asdict(gpu)
    del fields["devices"], fields["links"]
    return {"vendor": get_platform(fields.pop("platform")).VENDOR, **fields}


def process_access(gpu: Gpu) -> DeviceAccess:
    """Return what a process of this host needs to see ``gpu``, or all devices of a group, and no other device."""
    platform = get_platform(gpu.platform)
    return reduce(DeviceAccess.joined, (platform.process_access(one) for one in gpu.members))


def container_access(info: Mapping[str, Any], gpu: Gpu) -> DeviceAccess:
    """Return how a daemon, with this ``/info``, can give ``gpu``, or all devices of a group, to a container."""
    platform = get_platform(gpu.platform)
    return reduce(DeviceAccess.joined, (platform.container_access(info, one) for one in gpu.members))
