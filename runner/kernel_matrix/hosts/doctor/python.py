"""The Python that runs the runner, and the driver's bindings beside it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import version

from kernel_matrix.hosts.doctor.check_result import CheckResult, fail, ok, warn
from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.hosts.survey import installed
from kernel_matrix.version import __version__

_OLDEST = (3, 10)


def check(_host: Host) -> Iterator[CheckResult]:
    """Python is new enough, and the module ``pynvml`` is NVIDIA's own."""
    found = f"{platform.python_version()} ({sys.executable}), kernel-matrix {__version__}"
    oldest = ".".join(map(str, _OLDEST))
    if sys.version_info >= _OLDEST:
        yield ok("Python", found)
    else:
        yield fail("Python", found, f"install Python {oldest} or newer")
    yield _bindings()


def _bindings() -> CheckResult:
    subject, bindings = "NVML bindings", f"nvidia-ml-py {version('nvidia-ml-py')}"
    other = installed("pynvml")
    if other is None:
        return ok(subject, bindings)
    found = f"{bindings}, and beside it pynvml {other}, which brings a module of the same name"
    return warn(subject, found, "pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py")
