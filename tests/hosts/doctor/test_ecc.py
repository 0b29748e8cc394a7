"""Memory errors."""

from __future__ import annotations

from sim.nvml import A100, H200, RTX_4090, SimulatedDriver

from tests.hosts.doctor.clinic import Clinic


def test_errors_beyond_correction_are_a_warning(gpu_clinic: Clinic, driver: SimulatedDriver) -> None:
    driver.set({**H200, "ecc_uncorrected_total": 2}, {**A100, "ecc_corrected_total": 5}, RTX_4090)
    lines = gpu_clinic.examine("--sandbox", "process").about("ECC")
    assert [(line["verdict"], line["found"]) for line in lines] == [
        ("warn", "GPU 0: on, 0 errors corrected, 2 beyond correction"),
        ("ok", "GPU 1: on, 5 errors corrected, 0 beyond correction"),
        ("ok", "GPU 2: off"),
    ]
