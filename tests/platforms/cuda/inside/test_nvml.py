"""The judge's own little NVML, on the simulated driver: what it reads, and how it says that it cannot."""

import pytest

from kernel_matrix.inside.platform import SensorError
from kernel_matrix.platforms.cuda.inside import nvml
from kernel_matrix.platforms.cuda.inside.nvml import sensors_of
from tests.sim.nvml import H200

READ = f"""
import json
from kernel_matrix.inside.platform import SensorError
from kernel_matrix.platforms.cuda.inside.nvml import sensors_of
try:
    with sensors_of("{H200["uuid"]}") as read:
        print(json.dumps(read()))
except SensorError as error:
    print(json.dumps(str(error)))
"""


def test_clock_and_temperature_are_read_from_the_gpu_with_uuid(driver):
    other = {**H200, "uuid": "GPU-1", "clock_sm": 1}
    driver.set(other, {**H200, "clock_sm": 1755, "temperature": 63})
    assert driver.ask(READ) == [1755, 63]


UNREADABLE = {
    "a GPU that is not there": ({**H200, "uuid": "GPU-1"}, {}, "nvmlDeviceGetHandleByUUID failed with NVML error 6"),
    "a library that does not open": (H200, {"init": "!18"}, "nvmlInitWithFlags failed with NVML error 18"),
    "a clock it does not tell": ({**H200, "clock_sm": "!3"}, {}, "nvmlDeviceGetClockInfo failed with NVML error 3"),
    "a GPU that is lost": ({**H200, "lost": "!15"}, {}, "failed with NVML error 15"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_an_error_with_nvmls_number(name, driver):
    gpu, host, words = UNREADABLE[name]
    driver.set(gpu, **host)
    assert words in driver.ask(READ)


def test_without_nvml_there_are_no_sensors(monkeypatch):
    monkeypatch.setattr(nvml, "LIBRARY", "libnvidia-ml-of-another-world.so.1")
    with pytest.raises(SensorError, match="NVML cannot be loaded"), sensors_of(H200["uuid"]):
        pass


def test_a_function_that_an_old_nvml_lacks_is_named(driver):
    driver.set(H200)
    program = "import ctypes, json\nfrom kernel_matrix.platforms.cuda.inside import nvml\n"
    program += "try: nvml._call(ctypes.CDLL(nvml.LIBRARY), 'nvmlTomorrow')\n"
    program += "except nvml.SensorError as error: print(json.dumps(str(error)))"
    assert driver.ask(program) == "this NVML has no nvmlTomorrow"


READ_ENERGY = READ.replace("sensors_of", "energy_counter_of")


def test_energy_is_read_from_the_gpu_with_uuid(driver):
    driver.set({**H200, "uuid": "GPU-1", "energy": 1}, {**H200, "energy": 5_000_000_001})
    assert driver.ask(READ_ENERGY) == 5_000_000_001


def test_a_gpu_without_energy_counter_says_so_at_once(driver):
    driver.set({**H200, "energy": "!3"})
    assert driver.ask(READ_ENERGY) == "nvmlDeviceGetTotalEnergyConsumption failed with NVML error 3"
