"""Who is on an NVIDIA GPU: its driver's process lists.

The driver lists host PIDs, and knows compute, graphics and MPS contexts apart. Compute processes must be answered;
the other kinds do not exist on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pynvml

from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.cuda.nvml_calls import NvmlQuery, device


def processes(gpu: Gpu) -> Sequence[int]:
    """Host PIDs with a compute, graphics or MPS context on ``gpu``, ascending.

    :raises GpuLostError: when the device no longer answers.
    :raises InfrastructureError: when the driver cannot say, as where it hides processes.
    """
    with device(gpu, asked="processes on") as handle:
        return listing(handle)()


def listing(handle: Any) -> Callable[[], tuple[int, ...]]:
    """A function that lists the PIDs on a device, ascending, and asks no list twice that does not exist there.

    It raises :class:`pynvml.NVMLError` when the driver cannot say who is there.
    """
    graphics = NvmlQuery(partial(pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3, handle))
    mps = mps_listing(handle)

    def listed() -> tuple[int, ...]:
        found = [*pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle), *(graphics() or ()), *(mps() or ())]
        return tuple(sorted({process.pid for process in found}))

    return listed


def mps_listing(handle: Any) -> NvmlQuery:
    """The question for clients of an MPS server; null where the device has no such list."""
    return NvmlQuery(partial(pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, handle))
