"""Sensors of an AMD GPU as the judge reads them, on the simulated driver, and how it says that it cannot."""

import pytest

from kernel_matrix.inside.platform import SensorError
from kernel_matrix.platforms.rocm.inside import smi_library
from kernel_matrix.platforms.rocm.inside.sensors import sensors_of
from tests.sim.amd_smi import MI300X, RX_7900_XTX

READ = f"""
import json
from kernel_matrix.inside.platform import SensorError
from kernel_matrix.platforms.rocm.inside.sensors import energy_counter_of, sensors_of
try:
    with sensors_of("{MI300X["uuid"]}") as read:
        print(json.dumps(read()))
except SensorError as error:
    print(json.dumps(str(error)))
"""
READ_ENERGY = READ.replace("with sensors_of", "with energy_counter_of")


def test_sensors_are_those_of_the_amd_gpu_with_uuid(driver):
    driver.set(RX_7900_XTX, {**MI300X, "clock_sm": 1755, "temperature": 63})
    assert driver.ask(READ) == [1755, 63]


def test_temperature_is_of_the_edge_where_no_spot_is_told(driver):
    driver.set({**MI300X, "temperature": None, "temperature_edge": 39})
    assert driver.ask(READ) == [2100, 39]


UNREADABLE = {
    "a GPU that is not there": ({**MI300X, "uuid": "another"}, {}, "AMD SMI does not know the device"),
    "a library that does not open": (MI300X, {"init": "!34"}, "amdsmi_init: driver not loaded (AMD SMI error 34)"),
    "a table that is refused": ({**MI300X, "metrics": "!10"}, {}, "amdsmi_get_gpu_metrics_info: no perm"),
    "a clock it does not tell": ({**MI300X, "clock_sm": None}, {}, "current_gfxclk: not reported"),
    "a GPU that is lost": ({**MI300X, "lost": "!31"}, {}, "AMD SMI error 31"),
    "a library of another time": (MI300X, {"version": "24 0 0"}, "unknown layout"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_sensor_that_cannot_be_read_is_an_error(name, driver):
    gpu, host, words = UNREADABLE[name]
    driver.set(gpu, **host)
    assert words in driver.ask(READ)


def test_without_amd_smi_there_are_no_sensors(monkeypatch):
    monkeypatch.setattr(smi_library, "_PATHS", ("libamd_smi-of-another-world.so",))
    smi_library._library.cache_clear()
    with pytest.raises(SensorError, match="library not found"), sensors_of(MI300X["uuid"]):
        pass


def test_energy_is_read_from_the_amd_gpu_with_uuid(driver):
    driver.set(RX_7900_XTX, {**MI300X, "energy": 5_000_000_001})
    assert driver.ask(READ_ENERGY) == pytest.approx(5_000_000_001, rel=1e-6)


def test_amd_gpu_without_energy_counter_says_so_at_once(driver):
    driver.set({**MI300X, "energy": "!2"})
    assert driver.ask(READ_ENERGY) == "amdsmi_get_energy_count: not supported (AMD SMI error 2)"
