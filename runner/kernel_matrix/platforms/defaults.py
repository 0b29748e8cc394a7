"""Default members of :class:`~kernel_matrix.platforms.Platform`, for devices without the feature in question.

The package of a platform imports the defaults that suit it, and defines the other members.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kernel_matrix.inside.wire import KernelCode
from kernel_matrix.model.enums import Language
from kernel_matrix.platforms import ClockChoices, DeviceAccess, DeviceModes, Gpu, PlatformInventory
from kernel_matrix.platforms.check_result import CheckResult

__all__ = [
    "ACCESS_ADVICE",
    "ADVICE",
    "CACHES",
    "DAEMON_ERRORS",
    "DIVISION",
    "HIDDEN",
    "HIDDEN_IN_PROCESS",
    "LINK_KINDS",
    "PROGRAM_FOLDERS",
    "PROVEN",
    "SANITIZER",
    "SHARING_SERVER",
    "clock_choices",
    "clocks",
    "code_skip_reason",
    "compile_limits",
    "compile_settings",
    "compile_target",
    "compiles",
    "container_access",
    "driver_note",
    "driver_skip_reason",
    "examine_access",
    "examine_driver",
    "examine_toolkit",
    "launch_failure_reason",
    "local_compiler",
    "modes",
    "occupancy",
    "opened",
    "process_access",
    "sanitizer_report",
    "settings",
    "toolchain_gaps",
]

PROVEN = False
SANITIZER = ""
ACCESS_ADVICE = ""
DAEMON_ERRORS: tuple[tuple[str, str, str], ...] = ()
HIDDEN: Mapping[str, str] = {}
HIDDEN_IN_PROCESS: Mapping[str, str] = {}
CACHES: Mapping[str, str] = {}
PROGRAM_FOLDERS: tuple[str, ...] = ()
SHARING_SERVER = ""
DIVISION = "division into parts"
ADVICE: Mapping[str, str] = {}
LINK_KINDS: tuple[str, ...] = ()


@contextmanager
def opened() -> Iterator[None]:
    """Do nothing: reading about the device needs no library."""
    yield


def clocks(gpu: Gpu) -> tuple[int | None, int | None]:  # noqa: ARG001  # part of the protocol
    """Return None for both: there are no such clocks."""
    return None, None


def modes(gpu: Gpu) -> DeviceModes:  # noqa: ARG001  # part of the protocol
    """Return no modes: the device has none that could reserve it for a process."""
    return DeviceModes()


def clock_choices(gpu: Gpu) -> ClockChoices:  # noqa: ARG001  # part of the protocol
    """Return no choices: no clock can be locked."""
    return ClockChoices()


def sanitizer_report(tool: str, log: str) -> None:
    """Return None: there is no sanitizer."""


def settings() -> None:
    """Return None: no setting of a device is changed."""


def code_skip_reason(versions: Mapping[str, str], compute_capability: str | None, driver: str | None) -> None:
    """Return None: PyTorch's builds for the platform run on all of its devices."""


def driver_skip_reason(versions: Mapping[str, str], gpu: Gpu) -> None:
    """Return None: there is no driver."""


def driver_note(versions: Mapping[str, str], driver: str | None) -> None:
    """Return None: there is no driver."""


def toolchain_gaps(versions: Mapping[str, str]) -> tuple[str, ...]:  # noqa: ARG001  # part of the protocol
    """Return nothing: there is no table of toolchains."""
    return ()


def compiles(language: Language, versions: Mapping[str, str]) -> bool:  # noqa: ARG001  # part of the protocol
    """Return False: candidates are compiled only for a device that is present."""
    return False


def compile_target(compute_capability: str | None) -> str:  # noqa: ARG001  # part of the protocol
    """Return nothing: compilers target this machine by default."""
    return ""


def compile_limits(compute_capability: str | None) -> Mapping[str, int]:  # noqa: ARG001  # part of the protocol
    """Return nothing: no limits are known."""
    return {}


def launch_failure_reason(kernel: KernelCode) -> str:  # noqa: ARG001  # part of the protocol
    """Return nothing: no limits are known."""
    return ""


def occupancy(kernel: KernelCode) -> float | None:  # noqa: ARG001  # part of the protocol
    """Return None: no limits are known."""
    return None


def compile_settings(gpu: Gpu) -> Mapping[str, str]:  # noqa: ARG001  # part of the protocol
    """Return nothing: compilers target this machine by default."""
    return {}


def container_access(info: Mapping[str, Any], gpu: Gpu | None = None) -> DeviceAccess:  # noqa: ARG001  # part of the protocol
    """Return nothing: every process can use the device."""
    return DeviceAccess()


def process_access(gpu: Gpu) -> DeviceAccess:  # noqa: ARG001  # part of the protocol
    """Return nothing: every process can use the device."""
    return DeviceAccess()


def examine_driver(inventory: PlatformInventory) -> Iterable[CheckResult]:  # noqa: ARG001  # part of the protocol
    """Return nothing: there is no driver."""
    return ()


def examine_access(info: Mapping[str, Any], ways: Mapping[Gpu, str]) -> Iterable[CheckResult]:  # noqa: ARG001  # part of the protocol
    """Return nothing: every process can use the device."""
    return ()


def examine_toolkit(ways: Mapping[Gpu, str]) -> Iterable[CheckResult]:  # noqa: ARG001  # part of the protocol
    """Return nothing: every process can use the device."""
    return ()


def local_compiler() -> str:
    """Return nothing: compilers are Python packages."""
    return ""
