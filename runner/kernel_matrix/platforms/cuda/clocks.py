"""What clocks an NVIDIA GPU can be locked to."""

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
"""Workstation cards (Quadro, NVIDIA RTX) are none: their clocks are built to be set."""

_CONSUMER_NAMES = ("geforce", "titan")


def clock_choices(gpu: Gpu) -> ClockChoices:
    """Supported SM and memory clocks of ``gpu``, its base clock, and whether it is a consumer card.

    :raises GpuLostError: when the device no longer answers.
    :raises InfrastructureError: when it fails to answer what it should know.
    """
    with device(gpu, asked="clocks of") as handle:
        return ClockChoices(
            sm_mhz=value_of(supported_sm_mhz, handle) or (),
            memory_mhz=value_of(supported_memory_mhz, handle) or (),
            base_sm_mhz=value_of(base_sm_mhz, handle),
            consumer=_is_consumer(value_of(pynvml.nvmlDeviceGetBrand, handle), gpu.name),
        )


def supported_memory_mhz(handle: Any) -> tuple[int, ...]:
    """Memory clocks, descending."""
    return _descending(pynvml.nvmlDeviceGetSupportedMemoryClocks(handle))


def supported_sm_mhz(handle: Any) -> tuple[int, ...]:
    """SM clocks at the highest memory clock, descending: NVML documents them as what can be locked."""
    highest = supported_memory_mhz(handle)[0]
    return _descending(pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, highest))


def base_sm_mhz(handle: Any) -> int:
    """The clock that the driver's symbolic TDP limit stands for, as far as its default application clock tells.

    :raises NoAnswerError: where that default is the highest clock. So it is from Hopper on, and on boards whose base
        clock is far lower: it then says nothing about the TDP clock.
    """
    default: int | None = NvmlQuery(
        partial(pynvml.nvmlDeviceGetClock, handle, pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_ID_APP_CLOCK_DEFAULT),
        partial(pynvml.nvmlDeviceGetDefaultApplicationsClock, handle, pynvml.NVML_CLOCK_SM),
    )()
    if default is None:
        raise NoAnswerError("the driver names no default application clock")
    highest = value_of(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM)
    if highest is not None and default >= highest:
        raise NoAnswerError("the default application clock is the highest clock, which tells nothing about the base")
    return default


def _descending(megahertz: list[int]) -> tuple[int, ...]:
    if not megahertz:
        raise NoAnswerError("the driver names no supported clock")
    return tuple(sorted(megahertz, reverse=True))


def _is_consumer(brand: int | None, name: str) -> bool:
    if brand is None or brand == pynvml.NVML_BRAND_UNKNOWN:
        return any(word in name.lower() for word in _CONSUMER_NAMES)
    return brand in _CONSUMER_BRANDS
