"""Everything else that the driver says about a GPU."""

import pytest
from sim.amd_smi import MI300X, RX_7900_XTX


def test_details_of_a_full_device_miss_nothing(driver, ask):
    driver.set({**MI300X, "ecc_corrected": 7, "ecc_uncorrected": 2})
    said = ask("details(gpu)")
    assert said["missing"] == {}
    assert said["values"] == {
        "library_version": "26.0.2",
        "architecture": "gfx942",
        "compute_units": 304,
        "pci_bus_id": "0000:65:00.0",
        "ecc": True,
        "ecc_corrected": 7,
        "ecc_uncorrected": 2,
        "mig": False,
        "compute_partition": "SPX",
        "memory_partition": "NPS1",
        "perf_level": "auto",
        "power_limit_w": 750.0,
        "power_default_w": 750.0,
        "power_min_w": 0.0,
        "power_max_w": 750.0,
        "min_sm_mhz": 500,
        "max_sm_mhz": 2100,
        "max_memory_mhz": 1300,
    }


def test_details_unsupported_by_device_are_none_with_reason(driver, ask):
    driver.set({**RX_7900_XTX, "compute_units": None})
    said = ask("details(gpu)", uuid=RX_7900_XTX["uuid"])
    assert said["missing"]["ecc"] == "this device or driver does not support it"
    assert said["missing"]["compute_units"] == "the device does not report it"
    assert said["missing"].keys() == {name for name, value in said["values"].items() if value is None}


def test_details_of_unknown_layout_are_none_with_reason(driver, ask):
    driver.set(MI300X, version="27 0 0")
    said = ask("details(gpu)")
    assert "does not know this version" in said["missing"]["compute_units"]
    assert (said["values"]["library_version"], said["values"]["compute_partition"]) == ("27.0.0", "SPX")


def test_one_question_that_fails_does_not_hide_the_others(driver, ask):
    driver.set({**MI300X, "pci": "!12", "memory_partition": "!10"})
    said = ask("details(gpu)")
    assert "AMD SMI error 12" in said["missing"]["pci_bus_id"]
    assert said["missing"]["memory_partition"] == "only root may see it"
    assert said["values"]["compute_units"] == 304


@pytest.mark.parametrize(("level", "name"), [(8, "determinism"), (2, "the library's 2")])
def test_performance_level_has_its_name_or_number(driver, ask, level, name):
    driver.set({**MI300X, "perf_level": level})
    assert ask("details(gpu)")["values"]["perf_level"] == name
