"""The only module that changes an AMD GPU.

Every change goes through :func:`_change`, which first checks that this host permits changes. A setting lasts until it
is reset, the machine restarts or the driver is unloaded.

All clocks of a device are at one performance level. A limit of the SM clock is the level "determinism", one of the
memory clock is the level "manual", and each ends the other. The level can be read back, and is after every change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from ctypes import c_uint32, c_uint64, c_void_p
from enum import IntEnum
from typing import Any

from kernel_matrix.errors import GpuLostError, GpuSettingError, InfrastructureError
from kernel_matrix.platforms import ComputeMode, DeviceSettings, Gpu
from kernel_matrix.platforms.permission import SETTINGS_VARIABLE, host_file, why_forbidden
from kernel_matrix.platforms.rocm.clocks import MEMORY
from kernel_matrix.platforms.rocm.inside.smi_library import SmiError, SmiStatus, call, number
from kernel_matrix.platforms.rocm.smi_calls import check_present, handle_of, named, opened, our_error, value_of

_HIGHEST = 1
"""The library's number of the limit that is a highest clock."""

_NOT_OFFERED: Collection[int] = (
    SmiStatus.NOT_SUPPORTED,
    SmiStatus.NOT_YET_IMPLEMENTED,
    SmiStatus.SETTING_UNAVAILABLE,
    SmiStatus.FUNCTION_NOT_FOUND,
)
"""Codes after which nothing has been changed, because the device or driver has no such setting. "Invalid" is not among
them: the driver enters a performance level before it refuses a clock in it."""

_ROOT_ADVICE = "run as root (`sudo kernel-matrix …`), or leave the clock policy at `observe`"
_NOT_OFFERED_ADVICE = "this device or driver has no such setting; leave the clock policy at `observe`"


class PerfLevel(IntEnum):
    """The library's numbers of the performance levels that are set or expected here."""

    AUTO = 0
    MANUAL = 3
    STABLE_STD = 4
    DETERMINISM = 8


class SmiSettings:
    """Settings of AMD GPUs. Errors are those of :class:`kernel_matrix.platforms.DeviceSettings`."""

    def lock_sm_clock(self, gpu: Gpu, megahertz: int | None) -> None:
        """Limit the SM clock: under load it has this value, and a lower one only for a reason that telemetry shows.

        ``None`` means the level with clocks for profiling, which some models have.
        """
        if megahertz is None:
            change, level = "SM clock locked to the driver's profiling clock", PerfLevel.STABLE_STD
            _change(gpu, change, level, "amdsmi_set_gpu_perf_level", c_uint32(level))
        else:
            change, level = f"SM clock limited to {megahertz} MHz", PerfLevel.DETERMINISM
            _change(gpu, change, level, "amdsmi_set_gpu_perf_determinism_mode", c_uint64(megahertz))

    def lock_memory_clock(self, gpu: Gpu, megahertz: int) -> None:
        """Limit the memory clock, if the SM clock is not limited."""
        change, level = f"memory clock limited to {megahertz} MHz", PerfLevel.MANUAL
        arguments = (MEMORY, _HIGHEST, c_uint64(megahertz))
        ended = (PerfLevel.DETERMINISM, PerfLevel.STABLE_STD)
        _change(gpu, change, level, "amdsmi_set_gpu_clk_limit", *arguments, not_at=ended)

    def reset_sm_clock(self, gpu: Gpu) -> None:
        """Give all clocks back to the driver."""
        _change(gpu, "SM clock reset", PerfLevel.AUTO, "amdsmi_set_gpu_perf_level", c_uint32(PerfLevel.AUTO))

    def reset_memory_clock(self, gpu: Gpu) -> None:
        """Give all clocks back to the driver."""
        _change(gpu, "memory clock reset", PerfLevel.AUTO, "amdsmi_set_gpu_perf_level", c_uint32(PerfLevel.AUTO))

    def set_compute_mode(self, gpu: Gpu, mode: ComputeMode) -> None:
        """Refuse: AMD GPUs are open to any number of processes."""
        subject = f"{named(gpu)}: compute mode {mode.value}"
        _check_permitted(subject)
        raise _not_offered(f"{subject}: not done: AMD GPUs have no compute modes")


def settings() -> DeviceSettings:
    """Return the object that changes settings of AMD GPUs."""
    return SmiSettings()


def perf_level(handle: c_void_p) -> int:
    """Return the library's number of the present performance level."""
    return number("amdsmi_get_gpu_perf_level", c_uint32, handle)


def _change(
    gpu: Gpu, change: str, level: PerfLevel, setter: str, *args: Any, not_at: Collection[PerfLevel] = ()
) -> None:
    """Call ``setter`` on ``gpu`` if this host permits changes; every change goes through here.

    Args:
        gpu: the device.
        change: the change in words, for messages.
        level: the performance level after it.
        setter: the library's function.
        args: its arguments after the handle.
        not_at: levels that the change would end, and therefore must not.
    """
    subject = f"{named(gpu)}: {change}"
    _check_permitted(subject)
    try:
        with opened(), _refusals(gpu, subject):
            handle = handle_of(gpu)
            if not_at and value_of(perf_level, handle) in not_at:
                raise _not_offered(f"{subject}: not done: it would end the limit of the SM clock")
            call(setter, handle, *args)
            _check_level(subject, value_of(perf_level, handle), level)
    except (GpuLostError, GpuSettingError):
        raise
    except InfrastructureError as error:
        raise GpuSettingError(f"{subject}: not done: {error.what}", next_step=error.next_step) from error


@contextmanager
def _refusals(gpu: Gpu, subject: str) -> Iterator[None]:
    """Translate the driver's refusals of a change, while the library is open."""
    try:
        yield
    except SmiError as error:
        check_present(gpu, error)
        raise _setting_error(subject, error) from error


def _check_permitted(subject: str) -> None:
    if forbidden := why_forbidden():
        raise GpuSettingError(
            f"{subject}: not done, this host forbids it: {forbidden}",
            next_step=f"leave the clock policy at `observe`; only {SETTINGS_VARIABLE} and {host_file()} can permit it",
            permitted=False,
        )


def _check_level(subject: str, found: int | None, expected: PerfLevel) -> None:
    """Check the level that was read back; ``None`` if the driver does not tell it."""
    if found not in (None, expected):
        raise GpuSettingError(
            f"{subject}: the driver accepted it, but the performance level is {found} and not {expected.value}",
            next_step="see whether another program sets it: `amd-smi metric --perf-level`",
        )


def _setting_error(subject: str, error: SmiError) -> GpuSettingError:
    """Translate the driver's refusal of a change."""
    translated = our_error(f"{subject}: not done", error)
    if error.code in _NOT_OFFERED:
        return _not_offered(translated.what)
    if error.code == SmiStatus.NO_PERM:
        return GpuSettingError(translated.what, next_step=_ROOT_ADVICE, permitted=False)
    return GpuSettingError(translated.what, next_step=translated.next_step)


def _not_offered(what: str) -> GpuSettingError:
    return GpuSettingError(what, next_step=_NOT_OFFERED_ADVICE, permitted=False, supported=False)
