"""NVIDIA GPUs through NVML, read only: nothing here changes a setting of a device.

Devices are found by UUID, never by index: the driver's order, CUDA's order and a container's order differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pynvml

from runner.errors import InfrastructureError
from runner.gpus import Gpu, Inventory

_NO_ANSWER = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    }
)
"""Codes that say that one question has no answer here, and nothing about the health of the device."""

_ADVICE = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 was not found; if this machine has an NVIDIA GPU, install the NVIDIA driver"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the driver's kernel module is not loaded; run `modprobe nvidia`, and see `dmesg` if that fails"
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "library and kernel module are of different versions, as after an update; restart the machine, or unload and "
        "load the nvidia modules"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not open /dev/nvidiactl; ask for the group that owns it",
    pynvml.NVML_ERROR_GPU_IS_LOST: "the GPU fell off the bus; look for `Xid` in `dmesg` and restart the machine",
    pynvml.NVML_ERROR_RESET_REQUIRED: "the GPU must be reset; look for `Xid` in `dmesg` and run `nvidia-smi -r`",
    pynvml.NVML_ERROR_NOT_FOUND: "the driver no longer knows this GPU; look for `Xid` in `dmesg`",
    pynvml.NVML_ERROR_NOT_SUPPORTED: "the driver does not offer this here (virtual GPUs and WSL hide much)",
}
"""NVML error code → what it means and what to do."""


def inventory() -> Inventory:
    """All NVIDIA GPUs of this host in the driver's order; without a usable driver none, and the reason."""
    try:
        with opened(), _translated("NVML"):
            return _read_inventory()
    except InfrastructureError as error:
        return Inventory(reason=_in_words(error))


@contextmanager
def opened() -> Iterator[None]:
    """Keep NVML open; calls nest, and inner ones cost nothing.

    Where the driver's persistence mode is off, an open library is also what keeps a GPU initialised.

    :raises InfrastructureError: when library or driver are absent or do not fit together.
    """
    with _translated("NVML"):
        pynvml.nvmlInit()
    try:
        yield
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def processes(gpu: Gpu) -> Sequence[int]:
    """Host PIDs with a compute, graphics or MPS context on ``gpu``, ascending.

    :raises InfrastructureError: when the driver cannot say: GPU lost, or a driver that hides processes.
    """
    with opened(), _translated(f"processes on {gpu.uuid} ({gpu.name})"):
        handle = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        # Compute processes must be answered; the other kinds do not exist on every device.
        found = list(pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle))
        found += _answer(pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3, handle) or ()
        found += _answer(pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, handle) or ()
        return sorted({process.pid for process in found})


def snapshot(gpu: Gpu) -> dict[str, float | int | str | None]:
    """Clocks, power, temperature, memory in use, energy since the driver was loaded, and why the clock is what it is.

    ``event_reasons`` holds NVML's clock event bits (4: software power cap, 8: hardware slowdown, …).

    :raises InfrastructureError: when the GPU does not answer at all.
    """
    with opened(), _translated(f"{gpu.uuid} ({gpu.name})"):
        handle = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        milliwatts = _answer(pynvml.nvmlDeviceGetPowerUsage, handle)
        memory = _answer(pynvml.nvmlDeviceGetMemoryInfo, handle)
        return {
            "sm_clock_mhz": _answer(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
            "mem_clock_mhz": _answer(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
            "power_w": None if milliwatts is None else milliwatts / 1000,
            "temperature_c": _answer(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
            "memory_used_bytes": None if memory is None else memory.used,
            "event_reasons": _event_reasons(handle),
            "energy_mj": _answer(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle),
        }


def _read_inventory() -> Inventory:
    driver = _answer(pynvml.nvmlSystemGetDriverVersion)
    cuda = _cuda_version(_answer(pynvml.nvmlSystemGetCudaDriverVersion))
    answers = [_try_gpu(index, driver=driver, cuda_driver=cuda) for index in range(pynvml.nvmlDeviceGetCount())]
    reasons = [answer for answer in answers if isinstance(answer, str)]
    if not answers:
        reasons = [f"the NVIDIA driver {driver or ''} sees no GPU; look for `NVRM` in `dmesg`"]
    return Inventory(gpus=tuple(answer for answer in answers if isinstance(answer, Gpu)), reason="; ".join(reasons))


def _try_gpu(index: int, *, driver: str | None, cuda_driver: str | None) -> Gpu | str:
    """One GPU, or why it cannot be used: a lost one does not hide its neighbours."""
    try:
        return _read_gpu(index, driver=driver, cuda_driver=cuda_driver)
    except InfrastructureError as error:
        return _in_words(error)


def _read_gpu(index: int, *, driver: str | None, cuda_driver: str | None) -> Gpu:
    with _translated(f"GPU {index}"):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        capability = _answer(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        memory = _answer(pynvml.nvmlDeviceGetMemoryInfo, handle)
        return Gpu(
            vendor="nvidia",
            uuid=pynvml.nvmlDeviceGetUUID(handle),
            name=pynvml.nvmlDeviceGetName(handle),
            index=index,
            minor=_answer(pynvml.nvmlDeviceGetMinorNumber, handle),
            compute_capability=None if capability is None else "{}.{}".format(*capability),
            memory_bytes=0 if memory is None else memory.total,
            driver=driver,
            cuda_driver=cuda_driver,
        )


def _in_words(error: InfrastructureError) -> str:
    return f"{error.what}: {error.next_step}"


def _cuda_version(number: int | None) -> str | None:
    """``13000`` → ``"13.0"``."""
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def _event_reasons(handle: Any) -> int | None:
    reasons: int | None = _answer(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    # Drivers before 535 know the same bits under their old name only.
    return _answer(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) if reasons is None else reasons


def _answer(query: Callable[..., Any], *args: Any) -> Any:
    """What ``query`` says, or null where this driver or device does not offer it."""
    try:
        return query(*args)
    except pynvml.NVMLError as error:
        if error.value in _NO_ANSWER:
            return None
        raise


@contextmanager
def _translated(subject: str) -> Iterator[None]:
    """Turn NVML's errors into ours: the one place where their codes get a meaning."""
    try:
        yield
    except pynvml.NVMLError as error:
        advice = _ADVICE.get(error.value, "see whether `nvidia-smi` works, and `dmesg` if it does not")
        raise InfrastructureError(f"{subject}: {error} (NVML error {error.value})", next_step=advice) from error
