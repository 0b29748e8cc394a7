"""The only place where anything is changed on an NVIDIA GPU.

Every change goes through one gate, :func:`_change`, which asks this host's permission before it asks the driver
anything. Settings last until they are reset, the machine restarts or the driver is unloaded; where persistence mode is
off, the driver is unloaded with its last client, so whoever sets something keeps the library open.
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
"""NVML error code of a driver that does not let this user change it → what to do."""

_NOT_OFFERED = frozenset({pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND})
"""Codes after which nobody can have changed the setting either."""


class NvmlSettings:
    """Settings of NVIDIA GPUs. Errors are those of :class:`kernel_matrix.platforms.DeviceSettings`."""

    def lock_sm_clock(self, gpu: Gpu, megahertz: int | None) -> None:
        """Lock the SM clock; null: to the driver's symbolic TDP clock, which needs no table of models."""
        limit = pynvml.NVML_CLOCK_LIMIT_ID_TDP if megahertz is None else megahertz
        wanted = "its base clock" if megahertz is None else f"{megahertz} MHz"
        _change(gpu, f"SM clock locked to {wanted}", pynvml.nvmlDeviceSetGpuLockedClocks, limit, limit)

    def lock_memory_clock(self, gpu: Gpu, megahertz: int) -> None:
        """Lock the memory clock."""
        wanted = f"memory clock locked to {megahertz} MHz"
        _change(gpu, wanted, pynvml.nvmlDeviceSetMemoryLockedClocks, megahertz, megahertz)

    def reset_sm_clock(self, gpu: Gpu) -> None:
        """Give the SM clock back to the driver."""
        _change(gpu, "SM clock reset", pynvml.nvmlDeviceResetGpuLockedClocks)

    def reset_memory_clock(self, gpu: Gpu) -> None:
        """Give the memory clock back to the driver."""
        _change(gpu, "memory clock reset", pynvml.nvmlDeviceResetMemoryLockedClocks)

    def set_compute_mode(self, gpu: Gpu, mode: ComputeMode) -> None:
        """Say who may open the device."""
        number = _COMPUTE_MODE_NUMBERS[mode]
        _change(gpu, f"compute mode {mode.value}", pynvml.nvmlDeviceSetComputeMode, number)


def settings() -> DeviceSettings:
    """What can be set on NVIDIA GPUs."""
    return NvmlSettings()


def _change(gpu: Gpu, wanted: str, setter: Callable[..., None], *args: Any) -> None:
    """Call ``setter`` on ``gpu``, if this host permits any change at all: the one gate."""
    subject = f"{named(gpu)}: {wanted}"
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
        raise _refusal(subject, error) from error
    except GpuLostError:
        raise
    except InfrastructureError as error:
        raise GpuSettingError(f"{subject}: not done: {error.what}", next_step=error.next_step) from error


def _refusal(subject: str, error: pynvml.NVMLError) -> InfrastructureError:
    """What the driver's answer to a change means."""
    meaning = our_error(f"{subject}: not done", error)
    if error.value in GONE:
        return meaning
    advice = _NOT_PERMITTED.get(error.value)
    return GpuSettingError(
        meaning.what,
        next_step=advice or meaning.next_step,
        permitted=advice is None,
        supported=error.value not in _NOT_OFFERED,
    )
