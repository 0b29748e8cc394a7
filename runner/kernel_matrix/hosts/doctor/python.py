"""The Python that runs the program."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.platforms.check_result import CheckResult, fail, ok
from kernel_matrix.version import __version__

_OLDEST = (3, 10)


def check(_host: Host) -> Iterator[CheckResult]:
    """Check that Python is new enough."""
    found = f"{platform.python_version()} ({sys.executable}), kernel-matrix {__version__}"
    oldest = ".".join(map(str, _OLDEST))
    if sys.version_info >= _OLDEST:
        yield ok("Python", found)
    else:
        yield fail("Python", found, f"install Python {oldest} or newer")
