"""The only module that changes an NVIDIA GPU.

Every change goes through :func:`_change`, which first checks that this host permits changes. A setting lasts until it
is reset, the machine restarts or the driver is unloaded. If persistence mode is off, the driver is unloaded with its
last client, so a caller that changes a setting must keep the library open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

from kernel_matrix.errors import GpuLostError, GpuSettingError, InfrastructureError
from kernel_matrix.platforms import ComputeMode, DeviceSettings, Gpu
from kernel_matrix.platforms.cuda.modes import COMPUTE_MODES
from kernel_matrix.platforms.cuda.nvml_calls import GONE, handle_of, named, opened, our_error
from kernel_matrix.platforms.permission import SETTINGS_VARIABLE, host_file, why_forbidden

_COMPUTE_MODE_NUMBERS = {mode: number for number, mode in COMPUTE_MODES.items()}

_NOT_PERMITTED = {
    pynvml.NVML_ERROR_NO_PERMISSION: "run as root (`sudo kernel-matrix …`), or leave the clock policy at `observe`",
    pynvml.NVML_ERROR_NOT_SUPPORTED: (
        "this device or driver has no such setting (SM clocks lock from Volta on, memory clocks from Ampere on, those "
        "of virtual GPUs never); leave the clock policy at `observe`"
    ),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "this driver is too old for it; leave the clock policy at `observe`",
}
"""NVML error code of a driver that refuses a change to this user → advice."""

_NOT_OFFERED = frozenset({pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND})
"""Codes after which no other program can have changed the setting either."""


class NvmlSettings:
    """Settings of NVIDIA GPUs. Errors are those of :class:`kernel_matrix.platforms.DeviceSettings`."""

    def lock_sm_clock(self, gpu: Gpu, megahertz: int | None) -> None:
        """Lock the SM clock; ``None`` means the driver's symbolic TDP clock, which needs no table of models."""
        limit = pynvml.NVML_CLOCK_LIMIT_ID_TDP if megahertz is None else megahertz
        target = "its base clock" if megahertz is None else f"{megahertz} MHz"
        _change(gpu, f"SM clock locked to {target}", pynvml.nvmlDeviceSetGpuLockedClocks, limit, limit)

    def lock_memory_clock(self, gpu: Gpu, megahertz: int) -> None:
        """Lock the memory clock."""
        change = f"memory clock locked to {megahertz} MHz"
        _change(gpu, change, pynvml.nvmlDeviceSetMemoryLockedClocks, megahertz, megahertz)

    def reset_sm_clock(self, gpu: Gpu) -> None:
        """Give the SM clock back to the driver."""
        _change(gpu, "SM clock reset", pynvml.nvmlDeviceResetGpuLockedClocks)

    def reset_memory_clock(self, gpu: Gpu) -> None:
        """Give the memory clock back to the driver."""
        _change(gpu, "memory clock reset", pynvml.nvmlDeviceResetMemoryLockedClocks)

    def set_compute_mode(self, gpu: Gpu, mode: ComputeMode) -> None:
        """Set the rule for the processes that may open the device."""
        number = _COMPUTE_MODE_NUMBERS[mode]
        _change(gpu, f"compute mode {mode.value}", pynvml.nvmlDeviceSetComputeMode, number)


def settings() -> DeviceSettings:
    """Return the object that changes settings of NVIDIA GPUs."""
    return NvmlSettings()


def _change(gpu: Gpu, change: str, setter: Callable[..., None], *args: Any) -> None:
    """Call ``setter`` on ``gpu`` if this host permits changes; every change goes through here.

    Args:
        gpu: the device.
        change: the change in words, for messages.
        setter: NVML's function.
        args: its arguments after the handle.
    """
    subject = f"{named(gpu)}: {change}"
    if forbidden := why_forbidden():
        raise GpuSettingError(
            f"{subject}: not done, this host forbids it: {forbidden}",
            next_step=f"leave the clock policy at `observe`; only {SETTINGS_VARIABLE} and {host_file()} can permit it",
            permitted=False,
        )
    try:
        with opened():
            setter(handle_of(gpu), *args)
    except pynvml.NVMLError as error:
        raise _setting_error(subject, error) from error
    except GpuLostError:
        raise
    except InfrastructureError as error:
        raise GpuSettingError(f"{subject}: not done: {error.what}", next_step=error.next_step) from error


def _setting_error(subject: str, error: pynvml.NVMLError) -> InfrastructureError:
    """Translate the driver's refusal of a change."""
    translated = our_error(f"{subject}: not done", error)
    if error.value in GONE:
        return translated
    advice = _NOT_PERMITTED.get(error.value)
    return GpuSettingError(
        translated.what,
        next_step=advice or translated.next_step,
        permitted=advice is None,
        supported=error.value not in _NOT_OFFERED,
    )
