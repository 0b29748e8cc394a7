"""Clock and temperature of a GPU, read inside from NVML through ctypes.

The judge needs only these two values, to know when a warm-up is over. The host uses much more of NVML, through a
package that images may lack.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import Any, Iterator

from kernel_matrix.inside.platform import SensorError, Sensors

LIBRARY = "libnvidia-ml.so.1"

_SM_CLOCK = 1  # NVML_CLOCK_SM
_GPU_TEMPERATURE = 0  # NVML_TEMPERATURE_GPU


@contextmanager
def sensors_of(uuid: str) -> Iterator[Sensors]:
    """Open the sensors of the GPU with this UUID, until the context ends.

    Raises:
        SensorError: if there is no NVML, or it does not know the GPU.
    """
    library = _load()
    _call(library, "nvmlInitWithFlags", ctypes.c_uint(0))
    try:
        device = ctypes.c_void_p()
        _call(library, "nvmlDeviceGetHandleByUUID", ctypes.c_char_p(uuid.encode()), ctypes.byref(device))
        yield lambda: (
            _number(library, "nvmlDeviceGetClockInfo", device, _SM_CLOCK),
            _number(library, "nvmlDeviceGetTemperature", device, _GPU_TEMPERATURE),
        )
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
