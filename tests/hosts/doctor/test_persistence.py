"""Persistence mode."""

from __future__ import annotations

from sim.nvml import GTX_1080, H200, RTX_4090, SimulatedDriver

from tests.hosts.doctor.clinic import Clinic


def test_off_is_a_warning_and_unknown_is_not(gpu_clinic: Clinic, driver: SimulatedDriver) -> None:
    driver.set(H200, RTX_4090, GTX_1080)
    lines = gpu_clinic.examine("--sandbox", "process").about("persistence mode")
    assert [(line["verdict"], line["found"].partition(":")[0]) for line in lines] == [
        ("ok", "GPU 0"),
        ("warn", "GPU 1"),
        ("ok", "GPU 2"),
    ]
