"""Modes of an NVIDIA GPU that decide whether anybody can be alone on it."""

from __future__ import annotations

from typing import Any

import pynvml

from kernel_matrix.platforms import ComputeMode, DeviceModes, Gpu
from kernel_matrix.platforms.cuda.nvml_calls import device, value_of
from kernel_matrix.platforms.cuda.processes import mps_listing
from kernel_matrix.platforms.process_names import command

MPS_SERVER = "nvidia-cuda-mps-server"[:15]
"""As ``/proc/<pid>/comm`` shows it, which keeps 15 characters; its control daemon looks the same, on no device."""

COMPUTE_MODES = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: ComputeMode.DEFAULT,
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: ComputeMode.EXCLUSIVE_THREAD,
    pynvml.NVML_COMPUTEMODE_PROHIBITED: ComputeMode.PROHIBITED,
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: ComputeMode.EXCLUSIVE_PROCESS,
}
"""NVML's number → mode."""


def modes(gpu: Gpu) -> DeviceModes:
    """MIG, MPS, compute mode, persistence and ECC of ``gpu`` now.

    :raises GpuLostError: when the device no longer answers.
    :raises InfrastructureError: when it fails to answer what it should know: a mode that cannot be read is not "off".
    """
    with device(gpu, asked="modes of") as handle:
        return DeviceModes(
            mig=value_of(mig, handle),
            mps=value_of(mps, handle),
            compute_mode=value_of(compute_mode, handle),
            persistence=value_of(persistence, handle),
            ecc=value_of(ecc, handle),
        )


def mig(handle: Any) -> bool:
    """Whether the device is divided into instances now."""
    now, _after_reset = pynvml.nvmlDeviceGetMigMode(handle)
    return bool(now)


def mps(handle: Any) -> bool:
    """Whether an MPS server is on the device: it has clients, or a compute process has its name."""
    if mps_listing(handle)():
        return True
    return any(command(process.pid) == MPS_SERVER for process in pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle))


def compute_mode(handle: Any) -> ComputeMode:
    """Who may open the device."""
    return COMPUTE_MODES[pynvml.nvmlDeviceGetComputeMode(handle)]


def persistence(handle: Any) -> bool:
    """Whether the driver keeps the device initialised while nobody uses it."""
    return bool(pynvml.nvmlDeviceGetPersistenceMode(handle))


def ecc(handle: Any) -> bool:
    """Whether the device corrects its memory's errors now."""
    now, _after_reset = pynvml.nvmlDeviceGetEccMode(handle)
    return bool(now)
