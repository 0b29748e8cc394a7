"""Processes on an AMD GPU, from the driver's list of those that compute (``/sys/class/kfd/kfd/proc``)."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_void_p

from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.rocm.inside.smi_library import process_ids
from kernel_matrix.platforms.rocm.smi_calls import device


def processes(gpu: Gpu) -> Sequence[int]:
    """Return the host PIDs that compute on ``gpu``, ascending. Processes that only draw are not in the driver's list.

    Raises:
        GpuLostError: if the device no longer answers.
        InfrastructureError: if the driver cannot list them.
    """
    with device(gpu, subject="processes on") as handle:
        return listed(handle)


def listed(handle: c_void_p) -> tuple[int, ...]:
    """Return the PIDs on a device, ascending.

    Raises:
        SmiError: if the driver cannot list them.
    """
    return tuple(sorted(set(process_ids(handle))))
