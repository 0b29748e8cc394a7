"""Modes of an AMD GPU that decide whether a process can have it for itself."""

from __future__ import annotations

from ctypes import c_uint64, c_void_p

from kernel_matrix.platforms import DeviceModes, Gpu
from kernel_matrix.platforms.rocm.inside.smi_library import number, text
from kernel_matrix.platforms.rocm.smi_calls import device, value_of

_UNDIVIDED = "SPX"
_MEMORY_BLOCK = 1


def modes(gpu: Gpu) -> DeviceModes:
    """Read the present modes of ``gpu``: division into parts (as ``mig``) and ECC. AMD GPUs have no others of these.

    Raises:
        GpuLostError: if the device no longer answers.
        InfrastructureError: if a query fails that the device should answer: a mode that cannot be read is not off.
    """
    with device(gpu, subject="modes of") as handle:
        return DeviceModes(mig=value_of(divided, handle), ecc=value_of(ecc, handle))


def divided(handle: c_void_p) -> bool:
    """Return whether the device is divided into compute partitions."""
    return compute_partition(handle) != _UNDIVIDED


def compute_partition(handle: c_void_p) -> str:
    """Return the mode of compute partitions, such as ``SPX`` (one part) or ``CPX``."""
    return text("amdsmi_get_gpu_compute_partition", handle)


def memory_partition(handle: c_void_p) -> str:
    """Return the mode of memory partitions, such as ``NPS1`` (one part)."""
    return text("amdsmi_get_gpu_memory_partition", handle)


def ecc(handle: c_void_p) -> bool:
    """Return whether the device corrects errors of its memory."""
    return bool(number("amdsmi_get_gpu_ecc_enabled", c_uint64, handle) & _MEMORY_BLOCK)
