"""Ways of a device into a container that do not depend on its vendor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CDI = "cdi"
"""The daemon adds what a CDI specification lists for this device."""
DEVICES = "devices"
"""This program adds the device nodes, and what of the driver else is needed."""


def drops_requests(info: Mapping[str, Any]) -> bool:
    """Return whether a daemon drops requests for devices without a word, as Podman does.

    Args:
        info: the daemon's answer to ``/info``.
    """
    return "BuildahVersion" in info


def cdi_names(info: Mapping[str, Any]) -> list[str] | None:
    """Return the CDI devices that a daemon lists, such as ``vendor.com/gpu=0``; ``None`` if it is too old to list them.

    Args:
        info: the daemon's answer to ``/info``.
    """
    discovered = info.get("DiscoveredDevices")
    if discovered is None:
        return None
    return [str(device.get("ID", "")) for device in discovered if device.get("Source") == "cdi"]


def cdi_specifications(info: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text of each file in a daemon's folders of CDI specifications that can be read.

    Args:
        info: the daemon's answer to ``/info``.
    """
    for folder in info.get("CDISpecDirs") or ():
        yield from filter(None, map(_read, sorted(Path(folder).glob("*"))))


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
