"""Doctor's check of the NVIDIA container toolkit: older versions have known container escapes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping

from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.check_result import CheckResult, ok, warn
from kernel_matrix.platforms.container_ways import CDI
from kernel_matrix.platforms.cuda.device_access import TOOLKIT
from kernel_matrix.platforms.versions import parse_version

_SUBJECT = "container toolkit"
_COMMANDS = (("nvidia-ctk", "--version"), ("nvidia-container-cli", "--version"))
_VERSION = re.compile(r"version:?\s+v?(\d+\.\d+\.\d+)")

_TIMEOUT_S = 10  # a broken driver may keep these programs from answering

_ESCAPES = {"1.16.2": "CVE-2024-0132", "1.17.4": "CVE-2025-23359", "1.17.8": "CVE-2025-23266"}
"""First version in which an escape is fixed → name of the escape, oldest first."""
_SAFE = [*_ESCAPES][-1]


def examine_toolkit(ways: Mapping[Gpu, str]) -> Iterator[CheckResult]:
    """Check that the installed toolkit has no known container escape."""
    version = toolkit_version()
    if version is not None:
        yield _check_version(version)
    elif {CDI, TOOLKIT} & {*ways.values()}:
        found = "the daemon uses it, but neither nvidia-ctk nor nvidia-container-cli reports its version"
        yield warn(_SUBJECT, found, f"make sure it is {_SAFE} or newer: older ones have known escapes")
    else:
        yield ok(_SUBJECT, "not installed, and not needed here")


def toolkit_version() -> str | None:
    """Return the version that the toolkit's programs report; ``None`` if there are none."""
    matches = (_VERSION.search(_output(argv)) for argv in _COMMANDS)
    return next((match[1] for match in matches if match), None)


def _check_version(version: str) -> CheckResult:
    known = [name for fixed, name in _ESCAPES.items() if (parse_version(version) or ()) < (parse_version(fixed) or ())]
    if not known:
        return ok(_SUBJECT, version)
    found = f"{version}, which has known container escapes: {', '.join(known)}"
    return warn(_SUBJECT, found, f"update it to {_SAFE} or newer, because candidates are untrusted code")


def _output(argv: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
