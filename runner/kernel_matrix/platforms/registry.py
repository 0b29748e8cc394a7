"""Registry of platforms: the built-in ones, and those that other packages add as entry points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernel_matrix.platforms import Gpu, Platform, PlatformInventory
from kernel_matrix.plugins import Registry, protocol_members

PLATFORMS: Registry[Platform] = Registry(
    "platform",
    "kernel_matrix.platforms",
    {"cpu": "kernel_matrix.platforms.cpu", "cuda": "kernel_matrix.platforms.cuda"},
    members=protocol_members(Platform),
)
"""Name → package."""

DEFAULT = "cuda"
"""Platform of a value of the ``gpus`` axis that names no platform."""


def get_platform(name: str) -> Platform:
    """Import the platform registered as ``name``.

    Raises:
        PluginError: There is none, it cannot be imported, or it lacks a member of the protocol.
    """
    return PLATFORMS.load(name)


def inside_folder(name: str) -> Path:
    """Return the folder of the inside half of the platform ``name``."""
    return Path(str(get_platform(name).__file__)).resolve().parent / "inside"


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
    return {"vendor": get_platform(fields.pop("platform")).VENDOR, **fields}
