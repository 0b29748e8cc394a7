"""Clocks that an NVIDIA GPU can be locked to."""

from __future__ import annotations

from functools import partial
from typing import Any

import pynvml

from kernel_matrix.platforms import ClockChoices, Gpu
from kernel_matrix.platforms.cuda.nvml_calls import NoAnswerError, NvmlQuery, device, value_of

_CONSUMER_BRANDS = frozenset(
    {
        pynvml.NVML_BRAND_GEFORCE,
        pynvml.NVML_BRAND_GEFORCE_RTX,
        pynvml.NVML_BRAND_TITAN,
        pynvml.NVML_BRAND_TITAN_RTX,
    }
)
"""Brands of consumer cards. Workstation cards (Quadro, NVIDIA RTX) are not among them: their clocks can be locked."""

_CONSUMER_NAMES = ("geforce", "titan")


def clock_choices(gpu: Gpu) -> ClockChoices:
    """Read the supported SM and memory clocks of ``gpu``, its base clock, and whether it is a consumer card.

    Raises:
        GpuLostError: if the device no longer answers.
        InfrastructureError: if a query fails that the device should answer.
    """
    with device(gpu, subject="clocks of") as handle:
        return ClockChoices(
            sm_mhz=value_of(supported_sm_mhz, handle) or (),
            memory_mhz=value_of(supported_memory_mhz, handle) or (),
            base_sm_mhz=value_of(base_sm_mhz, handle),
            consumer=_is_consumer(value_of(pynvml.nvmlDeviceGetBrand, handle), gpu.name),
        )


def supported_memory_mhz(handle: Any) -> tuple[int, ...]:
    """Return the supported memory clocks, descending."""
    return _descending(pynvml.nvmlDeviceGetSupportedMemoryClocks(handle))


def supported_sm_mhz(handle: Any) -> tuple[int, ...]:
    """Return the SM clocks at the highest memory clock, descending; NVML documents that these can be locked."""
    highest = supported_memory_mhz(handle)[0]
    return _descending(pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, highest))


def base_sm_mhz(handle: Any) -> int:
    """Return the clock of the driver's symbolic TDP limit, which is the default application clock on older boards.

    Raises:
        NoAnswerError: if that default is the highest clock, as from Hopper on. The base clock is then far lower and
            unknown.
    """
    default: int | None = NvmlQuery(
        partial(pynvml.nvmlDeviceGetClock, handle, pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_ID_APP_CLOCK_DEFAULT),
        partial(pynvml.nvmlDeviceGetDefaultApplicationsClock, handle, pynvml.NVML_CLOCK_SM),
    )()
    if default is None:
        raise NoAnswerError("the driver reports no default application clock")
    highest = value_of(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM)
    if highest is not None and default >= highest:
        raise NoAnswerError("the default application clock is the highest clock, so the base clock is unknown")
    return default


def _descending(megahertz: list[int]) -> tuple[int, ...]:
    if not megahertz:
        raise NoAnswerError("the driver lists no supported clock")
    return tuple(sorted(megahertz, reverse=True))


def _is_consumer(brand: int | None, name: str) -> bool:
    if brand is None or brand == pynvml.NVML_BRAND_UNKNOWN:
        return any(word in name.lower() for word in _CONSUMER_NAMES)
    return brand in _CONSUMER_BRANDS
