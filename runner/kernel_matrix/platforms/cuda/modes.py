"""Modes of an NVIDIA GPU that decide whether a process can have it for itself."""

from __future__ import annotations

from typing import Any

import pynvml

from kernel_matrix.platforms import ComputeMode, DeviceModes, Gpu
from kernel_matrix.platforms.cuda.nvml_calls import device, value_of
from kernel_matrix.platforms.cuda.processes import mps_listing
from kernel_matrix.platforms.process_names import command

MPS_SERVER = "nvidia-cuda-mps-server"[:15]
"""Name of the MPS server in ``/proc/<pid>/comm``, which keeps 15 characters. The MPS control daemon has the same short
name, but is on no device."""

COMPUTE_MODES = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: ComputeMode.DEFAULT,
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: ComputeMode.EXCLUSIVE_THREAD,
    pynvml.NVML_COMPUTEMODE_PROHIBITED: ComputeMode.PROHIBITED,
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: ComputeMode.EXCLUSIVE_PROCESS,
}
"""NVML's number → mode."""


def modes(gpu: Gpu) -> DeviceModes:
    """Read the present modes of ``gpu``: MIG, MPS, compute mode, persistence and ECC.

    Raises:
        GpuLostError: if the device no longer answers.
        InfrastructureError: if a query fails that the device should answer: a mode that cannot be read is not off.
    """
    with device(gpu, subject="modes of") as handle:
        return DeviceModes(
            mig=value_of(mig, handle),
            mps=value_of(mps, handle),
            compute_mode=value_of(compute_mode, handle),
            persistence=value_of(persistence, handle),
            ecc=value_of(ecc, handle),
        )


def mig(handle: Any) -> bool:
    """Return whether the device is divided into MIG instances now."""
    now, _after_reset = pynvml.nvmlDeviceGetMigMode(handle)
    return bool(now)


def mps(handle: Any) -> bool:
    """Return whether an MPS server is on the device: it has clients, or a compute process has its name."""
    if mps_listing(handle)():
        return True
    return any(command(process.pid) == MPS_SERVER for process in pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle))


def compute_mode(handle: Any) -> ComputeMode:
    """Return the rule for the processes that may open the device."""
    return COMPUTE_MODES[pynvml.nvmlDeviceGetComputeMode(handle)]


def persistence(handle: Any) -> bool:
    """Return whether the driver keeps the device initialised while no process uses it."""
    return bool(pynvml.nvmlDeviceGetPersistenceMode(handle))


def ecc(handle: Any) -> bool:
    """Return whether the device corrects errors of its memory now."""
    now, _after_reset = pynvml.nvmlDeviceGetEccMode(handle)
    return bool(now)
