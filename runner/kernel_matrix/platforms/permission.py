"""Whether GPU settings may be changed on this host at all. What the host forbids, no matrix can allow.

Two places can forbid: the environment variable ``KERNEL_MATRIX_GPU_SETTINGS=forbid``, and the host's own file,
``/etc/kernel-matrix/host.toml`` (another path: ``KERNEL_MATRIX_HOST_FILE``), with ``gpu_settings = "forbid"``. A file
that cannot be understood forbids too: whoever wrote it meant something.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SETTINGS_VARIABLE = "KERNEL_MATRIX_GPU_SETTINGS"
HOST_FILE_VARIABLE = "KERNEL_MATRIX_HOST_FILE"

_HOST_FILE = Path("/etc/kernel-matrix/host.toml")
_KEY = "gpu_settings"
_FORBID, _ALLOW = "forbid", "allow"


def why_forbidden() -> str:
    """Why no setting of a GPU may be changed here, in words; empty where it may."""
    return _by_variable() or _by_file(host_file())


def why_not_root() -> str:
    """Why this user may not change settings, in words; empty for root.

    Drivers take them from root only; whether they take one is seen when a lease asks.
    """
    return "" if os.geteuid() == 0 else f"only root may, and this user is {os.geteuid()}"


def host_file() -> Path:
    """Where this host's own file is, whether it exists or not."""
    return Path(os.environ.get(HOST_FILE_VARIABLE) or _HOST_FILE)


def _by_variable() -> str:
    said = os.environ.get(SETTINGS_VARIABLE, "")
    if said in ("", _ALLOW):
        return ""
    if said == _FORBID:
        return f"{SETTINGS_VARIABLE}={_FORBID}"
    return f"{SETTINGS_VARIABLE} is {said!r}, which is neither '{_ALLOW}' nor '{_FORBID}', so nothing is changed"


def _by_file(path: Path) -> str:
    try:
        said: Any = tomllib.loads(path.read_text(encoding="utf-8")).get(_KEY, _ALLOW)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        return f"{path} cannot be read ({error}), so nothing is changed"
    if said == _ALLOW:
        return ""
    if said == _FORBID:
        return f"{path} says {_KEY} = '{_FORBID}'"
    return f"{path} says {_KEY} = {said!r}, which is neither '{_ALLOW}' nor '{_FORBID}', so nothing is changed"
