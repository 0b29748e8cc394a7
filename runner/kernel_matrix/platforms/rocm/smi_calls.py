"""Calls of AMD's management library: open it, find a device, translate errors into those of this program.

Devices are found by UUID, never by index: the driver's order, HIP's order and a container's order differ.

The library has no code for a lost device. Therefore the device's UUID is asked again after any error that does not
say that a query is not offered; a device that does not answer even this is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes import c_void_p
from dataclasses import dataclass
from threading import Lock
from typing import Any

from kernel_matrix.errors import GpuLostError, InfrastructureError
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.rocm.inside import smi_library
from kernel_matrix.platforms.rocm.inside.smi_library import SmiError, SmiStatus

NOT_OFFERED: dict[int, str] = {
    SmiStatus.NOT_SUPPORTED: "this device or driver does not support it",
    SmiStatus.NOT_YET_IMPLEMENTED: "the driver's library does not implement it",
    SmiStatus.NO_PERM: "only root may see it",
    SmiStatus.NO_DATA: "the driver has no value",
    SmiStatus.SETTING_UNAVAILABLE: "this device or driver does not support it",
    SmiStatus.FUNCTION_NOT_FOUND: "the driver's library does not have it",
    SmiStatus.UNKNOWN_LAYOUT: "this program does not know this version of the driver's library",
    SmiStatus.NOT_REPORTED: "the device does not report it",
}
"""Code of a query that is never answered here → reason. It says nothing about the health of the device."""

_ADVICE: dict[int, str] = {
    SmiStatus.LIBRARY_NOT_FOUND: (
        "libamd_smi.so was not found; if this machine has an AMD GPU, install ROCm's package amd-smi-lib"
    ),
    SmiStatus.DRIVER_NOT_LOADED: (
        "the driver's kernel module is not loaded; run `modprobe amdgpu`, and see `dmesg` if that fails"
    ),
    SmiStatus.NO_PERM: "this user may not open /dev/kfd or /dev/dri; ask for the groups render and video",
    SmiStatus.NOT_SUPPORTED: "the driver does not offer this here (virtual GPUs hide much)",
    SmiStatus.UNKNOWN_LAYOUT: "use ROCm 6.4 or 7, or a newer version of this program",
}
"""Error code → meaning and advice."""

_LOST_ADVICE = "look for `amdgpu` in `dmesg` and restart the machine"


class _Openings:
    """Count of the openings of the library, which itself does not count them in every release."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0

    def add(self) -> None:
        """Open the library if it is not open."""
        with self._lock:
            if not self._count:
                smi_library.init()
            self._count += 1

    def remove(self) -> None:
        """Close the library if nothing else has it open."""
        with self._lock:
            self._count -= 1
            if not self._count:
                with suppress(SmiError):
                    smi_library.call("amdsmi_shut_down")


_OPENINGS = _Openings()


@dataclass(frozen=True, slots=True)
class SmiAnswer:
    """Answer to one query of a device."""

    value: Any
    reason: str = ""
    """Reason why ``value`` is ``None``."""


@contextmanager
def opened() -> Iterator[None]:
    """Keep the library open; calls nest, and inner ones cost nothing.

    Raises:
        InfrastructureError: if library or driver are absent, or refuse.
    """
    with translated("AMD SMI"):
        _OPENINGS.add()
    try:
        yield
    finally:
        _OPENINGS.remove()


@contextmanager
def device(gpu: Gpu, *, subject: str = "") -> Iterator[c_void_p]:
    """Yield the library's handle of ``gpu``, with the library open and its errors translated.

    Args:
        gpu: the device.
        subject: words before the name of the device in error messages, such as ``clocks of``.

    Raises:
        GpuLostError: if the device no longer answers.
        InfrastructureError: if a query in the context fails.
    """
    with opened(), about(gpu, subject=subject):
        yield handle_of(gpu)


@contextmanager
def about(gpu: Gpu, *, subject: str = "") -> Iterator[None]:
    """Translate the library's errors about ``gpu``, for callers that keep a handle of it.

    Args:
        gpu: the device.
        subject: words before the name of the device in error messages.

    Raises:
        GpuLostError: if the device no longer answers.
        InfrastructureError: for all other errors.
    """
    try:
        yield
    except SmiError as error:
        check_present(gpu, error)
        raise our_error(f"{subject} {named(gpu)}".lstrip(), error) from error


def check_present(gpu: Gpu, error: SmiError) -> None:
    """Check after ``error`` that ``gpu`` still answers.

    Raises:
        GpuLostError: if it does not.
    """
    if error.code not in NOT_OFFERED:
        handle_of(gpu)


def handle_of(gpu: Gpu) -> c_void_p:
    """Return the library's handle of ``gpu``.

    Raises:
        GpuLostError: if the driver does not find the device.
        InfrastructureError: if this process may not use the driver.
    """
    failed = None
    with translated(named(gpu)):
        handles = smi_library.devices()
    for handle in handles:
        try:
            if smi_library.uuid(handle) == gpu.uuid:
                return handle
        except SmiError as error:  # noqa: PERF203  # another device may fail
            failed = error
    if failed and failed.code == SmiStatus.NO_PERM:
        raise our_error(named(gpu), failed) from failed
    why = f" ({failed})" if failed else ""
    raise GpuLostError(f"{named(gpu)}: the driver no longer knows it{why}", next_step=_LOST_ADVICE) from failed


def named(gpu: Gpu) -> str:
    """Return the name of ``gpu`` in messages."""
    return f"{gpu.uuid} ({gpu.name})"


def ask(gpu: Gpu, query: Callable[..., Any], *args: Any) -> SmiAnswer:
    """Return the answer to ``query``; a failure is an answer with a reason, so that other queries can follow.

    Raises:
        GpuLostError: if the device no longer answers.
    """
    try:
        return SmiAnswer(query(*args))
    except SmiError as error:
        check_present(gpu, error)
        return SmiAnswer(None, NOT_OFFERED.get(error.code, str(error)))


def value_of(query: Callable[..., Any], *args: Any) -> Any:
    """Return the value of ``query``, or ``None`` if this driver or device never answers it.

    Raises:
        SmiError: if the query fails although it is supported.
    """
    try:
        return query(*args)
    except SmiError as error:
        if error.code in NOT_OFFERED:
            return None
        raise


@contextmanager
def translated(subject: str) -> Iterator[None]:
    """Translate the library's errors about ``subject``, which is not a device with a known UUID."""
    try:
        yield
    except SmiError as error:
        raise our_error(subject, error) from error


def our_error(subject: str, error: SmiError) -> InfrastructureError:
    """Translate an error of the library about something that is not lost.

    Args:
        subject: start of the message.
        error: the library's error.
    """
    advice = _ADVICE.get(error.code, "check whether `amd-smi list` works, and see `dmesg` if it does not")
    return InfrastructureError(f"{subject}: {error}", next_step=advice)
