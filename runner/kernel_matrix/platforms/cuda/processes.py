"""Processes on an NVIDIA GPU, from the driver's lists.

The driver has a list of host PIDs for each of compute, graphics and MPS contexts. Every device has the first; the
others are optional.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pynvml

from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.cuda.nvml_calls import NvmlQuery, device


def processes(gpu: Gpu) -> Sequence[int]:
    """Return the host PIDs with a compute, graphics or MPS context on ``gpu``, ascending.

    Raises:
        GpuLostError: if the device no longer answers.
        InfrastructureError: if the driver cannot list them, for example because it hides processes.
    """
    with device(gpu, subject="processes on") as handle:
        return listing(handle)()


def listing(handle: Any) -> Callable[[], tuple[int, ...]]:
    """Make a function that returns the PIDs on a device, ascending, and skips lists that the device does not have.

    It raises :class:`pynvml.NVMLError` if the driver cannot list them.
    """
    graphics = NvmlQuery(partial(pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3, handle))
    mps = mps_listing(handle)

    def listed() -> tuple[int, ...]:
        found = [*pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle), *(graphics() or ()), *(mps() or ())]
        return tuple(sorted({process.pid for process in found}))

    return listed


def mps_listing(handle: Any) -> NvmlQuery:
    """Make the query for clients of an MPS server; its answer is ``None`` if the device has no such list."""
    return NvmlQuery(partial(pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, handle))
