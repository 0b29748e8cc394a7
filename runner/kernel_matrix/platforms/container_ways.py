"""Ways of a device into a container that do not depend on its vendor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kernel_matrix.platforms.versions import is_between

CDI = "cdi"
"""The daemon adds what a CDI specification lists for this device."""
DEVICES = "devices"
"""This program adds the device nodes, and what of the driver else is needed."""
_PODMAN_WITH_CDI: Final = "5.4"
"""The first version of Podman that follows requests for CDI devices; those before drop them without a word."""
_PODMAN_FOLDERS: Final = ("/etc/cdi", "/var/run/cdi")
"""Where Podman looks for CDI specifications; unlike Docker it does not say so."""


def is_podman(info: Mapping[str, Any]) -> bool:
    """Return whether Podman's service answers in place of a Docker daemon.

    Args:
        info: the daemon's answer to ``/info``.
    """
    return "BuildahVersion" in info


def takes_cdi_requests(info: Mapping[str, Any]) -> bool:
    """Return whether a daemon may be asked for CDI devices.

    Args:
        info: the daemon's answer to ``/info``.
    """
    return not is_podman(info) or is_between(str(info.get("ServerVersion")), _PODMAN_WITH_CDI, "")


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
    for folder in _PODMAN_FOLDERS if is_podman(info) else info.get("CDISpecDirs") or ():
        yield from filter(None, map(_read, sorted(Path(folder).glob("*"))))


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
