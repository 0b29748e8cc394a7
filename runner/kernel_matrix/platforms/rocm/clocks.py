"""Clocks that an AMD GPU can be limited to."""

from __future__ import annotations

from ctypes import c_void_p

from kernel_matrix.platforms import ClockChoices, Gpu
from kernel_matrix.platforms.rocm.inside.smi_library import reported, structure
from kernel_matrix.platforms.rocm.inside.smi_structs import ClockInfo
from kernel_matrix.platforms.rocm.smi_calls import device, value_of

SM, MEMORY = 0, 4
"""The library's numbers of the clocks."""

_CONSUMER_NAME = "radeon rx"


def clock_choices(gpu: Gpu) -> ClockChoices:
    """Read the SM clocks of ``gpu``, each whole number of MHz between the lowest and the highest.

    No memory clock is offered: a limit of it ends the limit of the SM clock (:mod:`.settings`), and under load the
    memory has its highest clock anyway. The driver knows no base clock.

    Raises:
        GpuLostError: if the device no longer answers.
        InfrastructureError: if a query fails that the device should answer.
    """
    with device(gpu, subject="clocks of") as handle:
        return ClockChoices(
            sm_mhz=value_of(supported_sm_mhz, handle) or (), consumer=_CONSUMER_NAME in gpu.name.lower()
        )


def supported_sm_mhz(handle: c_void_p) -> tuple[int, ...]:
    """Return the SM clocks, descending."""
    return tuple(range(limit_mhz(handle, SM, "max_clk"), limit_mhz(handle, SM, "min_clk") - 1, -1))


def limit_mhz(handle: c_void_p, clock: int, which: str) -> int:
    """Return the lowest (``min_clk``) or highest (``max_clk``) value of a clock."""
    megahertz: int = reported(structure("amdsmi_get_clock_info", ClockInfo, handle, clock), which)
    return megahertz
