"""Members of :class:`~kernel_matrix.platforms.Platform` for devices that lack what they are about.

A platform's package imports those that fit it, and defines the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kernel_matrix.model.enums import Language
from kernel_matrix.platforms import ClockChoices, DeviceAccess, DeviceModes, Gpu, PlatformInventory
from kernel_matrix.platforms.check_result import CheckResult

__all__ = [
    "ACCESS_ADVICE",
    "ADVICE",
    "CACHES",
    "DAEMON_ERRORS",
    "HIDDEN",
    "HIDDEN_IN_PROCESS",
    "PROGRAM_FOLDERS",
    "SANITIZER",
    "SHARING_SERVER",
    "clock_choices",
    "clocks",
    "code_obstacle",
    "compile_limits",
    "compile_settings",
    "compile_target",
    "compiles",
    "container_access",
    "driver_note",
    "driver_obstacle",
    "examine_access",
    "examine_driver",
    "examine_toolkit",
    "launch_obstacle",
    "local_compiler",
    "modes",
    "opened",
    "process_access",
    "settings",
    "toolchain_gaps",
]

SANITIZER = ""
ACCESS_ADVICE = ""
DAEMON_ERRORS: tuple[tuple[str, str, str], ...] = ()
HIDDEN: Mapping[str, str] = {}
HIDDEN_IN_PROCESS: Mapping[str, str] = {}
CACHES: Mapping[str, str] = {}
PROGRAM_FOLDERS: tuple[str, ...] = ()
SHARING_SERVER = ""
ADVICE: Mapping[str, str] = {}


@contextmanager
def opened() -> Iterator[None]:
    """Keep nothing open."""
    yield


def clocks(gpu: Gpu) -> tuple[int | None, int | None]:  # noqa: ARG001  # no device has any
    """Return None for both: there are no such clocks."""
    return None, None


def modes(gpu: Gpu) -> DeviceModes:  # noqa: ARG001  # as above
    """Return nothing: it has no modes that could keep others off it."""
    return DeviceModes()


def clock_choices(gpu: Gpu) -> ClockChoices:  # noqa: ARG001  # as above
    """Return nothing: no clock can be locked."""
    return ClockChoices()


def settings() -> None:
    """Return None: nothing of a device is changed."""


def code_obstacle(versions: Mapping[str, str], compute_capability: str | None, driver: str | None) -> None:
    """Return None: PyTorch's builds for the platform run on every device of it."""


def driver_obstacle(versions: Mapping[str, str], gpu: Gpu) -> None:
    """Return None: there is no driver."""


def driver_note(versions: Mapping[str, str], driver: str | None) -> None:
    """Return None: there is no driver."""


def toolchain_gaps(versions: Mapping[str, str]) -> tuple[str, ...]:  # noqa: ARG001  # as above
    """Return nothing: there is no table of toolchains that one could be missing from."""
    return ()


def compiles(language: Language, versions: Mapping[str, str]) -> bool:  # noqa: ARG001  # as above
    """Return False: nothing is compiled for a device that is not here."""
    return False


def compile_target(compute_capability: str | None) -> str:  # noqa: ARG001  # as above
    """Return nothing: compilers choose the target."""
    return ""


def compile_limits(compute_capability: str | None) -> Mapping[str, int]:  # noqa: ARG001  # as above
    """Return nothing: no limits are known."""
    return {}


def launch_obstacle(*, arch: int, registers: int, shared_bytes: int) -> str:  # noqa: ARG001  # as above
    """Return nothing: no limits are known."""
    return ""


def compile_settings(gpu: Gpu) -> Mapping[str, str]:  # noqa: ARG001  # as above
    """Return nothing: compilers choose the target."""
    return {}


def container_access(info: Mapping[str, Any], gpu: Gpu | None = None) -> DeviceAccess:  # noqa: ARG001  # as above
    """Return nothing: every process can reach it."""
    return DeviceAccess()


def process_access(gpu: Gpu) -> DeviceAccess:  # noqa: ARG001  # as above
    """Return nothing: every process can reach it."""
    return DeviceAccess()


def examine_driver(inventory: PlatformInventory) -> Iterable[CheckResult]:  # noqa: ARG001  # as above
    """Return nothing: a CPU has no driver."""
    return ()


def examine_access(info: Mapping[str, Any], ways: Mapping[Gpu, str]) -> Iterable[CheckResult]:  # noqa: ARG001  # as above
    """Return nothing: every process can reach it."""
    return ()


def examine_toolkit(ways: Mapping[Gpu, str]) -> Iterable[CheckResult]:  # noqa: ARG001  # as above
    """Return nothing: every process can reach it."""
    return ()


def local_compiler() -> str:
    """Return nothing: compilers are Python packages."""
    return ""
