"""Clock, temperature and energy of a GPU, read inside from AMD's management library.

The judge needs clock and temperature to know when a warm-up is over, and the energy that calls take.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from ctypes import c_void_p
from typing import Iterator, Tuple

from kernel_matrix.inside.platform import EnergyCounter, SensorError, Sensors
from kernel_matrix.platforms.rocm.inside import smi_library
from kernel_matrix.platforms.rocm.inside.smi_library import SmiError
from kernel_matrix.platforms.rocm.inside.smi_structs import GpuMetrics, member


@contextmanager
def sensors_of(uuid: str) -> Iterator[Sensors]:
    """Open the sensors of the GPU with this UUID, until the context ends.

    Raises:
        SensorError: There is no library, or it does not know the GPU.
    """
    with _opened(uuid) as device:

        def read() -> Tuple[int, int]:
            with _translated():
                table = smi_library.structure("amdsmi_get_gpu_metrics_info", GpuMetrics, device)
                return int(smi_library.reported(table, "current_gfxclk")), _temperature_c(table)

        yield read


@contextmanager
def energy_counter_of(uuid: str) -> Iterator[EnergyCounter]:
    """Open the energy counter of the GPU with this UUID, until the context ends.

    Raises:
        SensorError: There is no library, it does not know the GPU, or the GPU counts no energy.
    """
    with _opened(uuid) as device:

        def read_mj() -> int:
            with _translated():
                return smi_library.energy_mj(device)

        read_mj()
        yield read_mj


def _temperature_c(table: GpuMetrics) -> int:
    """Return the temperature of the hottest spot, or of the edge if the device reports only this."""
    hottest = member(table, "temperature_hotspot")
    return int(smi_library.reported(table, "temperature_edge") if hottest is None else hottest)


@contextmanager
def _opened(uuid: str) -> Iterator[c_void_p]:
    with _translated():
        smi_library.init()
    try:
        yield _device(uuid)
    finally:
        with suppress(SmiError):
            smi_library.call("amdsmi_shut_down")


def _device(uuid: str) -> c_void_p:
    with _translated():
        for handle in smi_library.devices():
            if smi_library.uuid(handle) == uuid:
                return handle
    raise SensorError(f"AMD SMI does not know the device {uuid}")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except SmiError as error:
        raise SensorError(str(error)) from None
