"""Permission to change settings of GPUs on this host. A matrix cannot allow what the host forbids.

Changes are forbidden by the environment variable ``KERNEL_MATRIX_GPU_SETTINGS=forbid``, or by
``gpu_settings = "forbid"`` in the host's file, ``/etc/kernel-matrix/host.toml`` or the path in
``KERNEL_MATRIX_HOST_FILE``. A file that cannot be parsed forbids them, too, because its author may have meant to.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kernel_matrix.toml_text import parse_toml

SETTINGS_VARIABLE = "KERNEL_MATRIX_GPU_SETTINGS"
HOST_FILE_VARIABLE = "KERNEL_MATRIX_HOST_FILE"

_HOST_FILE = Path("/etc/kernel-matrix/host.toml")
_KEY = "gpu_settings"
_FORBID, _ALLOW = "forbid", "allow"


def why_forbidden() -> str:
    """Return the reason why no setting of a GPU may be changed on this host; empty if changes are permitted."""
    return _reason_in_variable() or _reason_in_file(host_file())


def why_not_root() -> str:
    """Return the reason why this user may not change settings; empty for root.

    Drivers accept changes from root only. Whether the driver accepts one of root's is known only after trying.
    """
    return "" if os.geteuid() == 0 else f"only root may, and this user is {os.geteuid()}"


def host_file() -> Path:
    """Return the path of this host's file, which may not exist."""
    return Path(os.environ.get(HOST_FILE_VARIABLE) or _HOST_FILE)


def _reason_in_variable() -> str:
    value = os.environ.get(SETTINGS_VARIABLE, "")
    if value in ("", _ALLOW):
        return ""
    if value == _FORBID:
        return f"{SETTINGS_VARIABLE}={_FORBID}"
    return f"{SETTINGS_VARIABLE} is {value!r}, which is neither '{_ALLOW}' nor '{_FORBID}', so nothing is changed"


def _reason_in_file(path: Path) -> str:
    try:
        value: Any = parse_toml(path.read_text(encoding="utf-8")).get(_KEY, _ALLOW)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        return f"{path} cannot be read ({error}), so nothing is changed"
    if value == _ALLOW:
        return ""
    if value == _FORBID:
        return f"{path} says {_KEY} = '{_FORBID}'"
    return f"{path} says {_KEY} = {value!r}, which is neither '{_ALLOW}' nor '{_FORBID}', so nothing is changed"
