"""Identity of this machine, as records name it."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import socket
from dataclasses import dataclass
from pathlib import Path

from kernel_matrix.platforms.cpu import model_name
from kernel_matrix.version import __version__

_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostIdentity:
    """Identity of a host in a record."""

    hostname: str
    machine: str
    """First 16 hex digits of the SHA-256 of the machine id, or of the host name if there is no machine id."""
    platform: str
    """Kernel, architecture and distribution."""
    cpu: str
    """Model name."""
    cores: int
    """Number of logical CPUs that this process may use."""
    python: str
    version: str
    """Version of kernel-matrix."""


@functools.cache
def host_identity() -> HostIdentity:
    """Return the identity of the host that this process runs on."""
    hostname = socket.gethostname()
    machine_id = next((text for text in map(_read, _MACHINE_IDS) if text), hostname)
    return HostIdentity(
        hostname=hostname,
        machine=hashlib.sha256(machine_id.encode()).hexdigest()[:16],
        platform=f"{platform.system()} {platform.release()} {platform.machine()}, {_distribution()}",
        cpu=model_name(),
        cores=len(os.sched_getaffinity(0)),
        python=platform.python_version(),
        version=__version__,
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return "unknown distribution"
