"""Clock, temperature and energy of a GPU, read inside from NVML through ctypes.

The judge needs clock and temperature to know when a warm-up is over, and the energy that calls take. The host uses much
more of NVML, through a package that images may lack.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import Any, Iterator, Tuple

from kernel_matrix.inside.platform import EnergyCounter, SensorError, Sensors

LIBRARY = "libnvidia-ml.so.1"

_SM_CLOCK = 1  # NVML_CLOCK_SM
_GPU_TEMPERATURE = 0  # NVML_TEMPERATURE_GPU


@contextmanager
def sensors_of(uuid: str) -> Iterator[Sensors]:
    """Open the sensors of the GPU with this UUID, until the context ends.

    Raises:
        SensorError: if there is no NVML, or it does not know the GPU.
    """
    with _opened(uuid) as (library, device):
        yield lambda: (
            _number(library, "nvmlDeviceGetClockInfo", device, _SM_CLOCK),
            _number(library, "nvmlDeviceGetTemperature", device, _GPU_TEMPERATURE),
        )


@contextmanager
def energy_counter_of(uuid: str) -> Iterator[EnergyCounter]:
    """Open the energy counter of the GPU with this UUID, until the context ends.

    Raises:
        SensorError: if there is no NVML, it does not know the GPU, or the GPU counts no energy.
    """
    with _opened(uuid) as (library, device):

        def read_mj() -> int:
            value = ctypes.c_ulonglong()
            _call(library, "nvmlDeviceGetTotalEnergyConsumption", device, ctypes.byref(value))
            return value.value

        read_mj()
        yield read_mj


@contextmanager
def _opened(uuid: str) -> Iterator[Tuple[ctypes.CDLL, ctypes.c_void_p]]:
    library = _load()
    _call(library, "nvmlInitWithFlags", ctypes.c_uint(0))
    try:
        device = ctypes.c_void_p()
        _call(library, "nvmlDeviceGetHandleByUUID", ctypes.c_char_p(uuid.encode()), ctypes.byref(device))
        yield library, device
    finally:
        library.nvmlShutdown()


def _load() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise SensorError(f"NVML cannot be loaded: {error}") from None


def _number(library: ctypes.CDLL, function: str, device: ctypes.c_void_p, which: int) -> int:
    value = ctypes.c_uint()
    _call(library, function, device, ctypes.c_int(which), ctypes.byref(value))
    return value.value


def _call(library: ctypes.CDLL, function: str, *arguments: Any) -> None:
    try:
        code = getattr(library, function)(*arguments)
    except AttributeError:
        raise SensorError(f"this NVML has no {function}") from None
    if code != 0:
        raise SensorError(f"{function} failed with NVML error {code}")
