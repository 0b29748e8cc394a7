"""Modes that decide whether anybody can be alone on a GPU."""

import pytest
from sim.amd_smi import MI300X, RX_7900_XTX


def test_undivided_gpu_has_its_modes_off(driver, ask):
    driver.set(MI300X)
    expected = {"mig": False, "mps": None, "compute_mode": None, "persistence": None, "ecc": True}
    assert ask("modes(gpu)") == expected


@pytest.mark.parametrize("partition", ["DPX", "TPX", "QPX", "CPX"])
def test_gpu_with_compute_partitions_is_divided(driver, ask, partition):
    driver.set({**MI300X, "partition": partition})
    assert ask("modes(gpu)")["mig"] is True


def test_ecc_is_that_of_the_memory_alone(driver, ask):
    driver.set({**MI300X, "ecc": 0})
    assert ask("modes(gpu)")["ecc"] is False


def test_modes_that_a_device_does_not_have_are_null(driver, ask):
    driver.set(RX_7900_XTX)
    assert set(ask("modes(gpu)", uuid=RX_7900_XTX["uuid"]).values()) == {None}


@pytest.mark.parametrize("mode", ["partition", "ecc"])
def test_a_mode_that_cannot_be_read_is_an_error_and_not_off(driver, ask, mode):
    driver.set({**MI300X, mode: "!12"})
    said = ask("modes(gpu)")
    assert said["error"] == "InfrastructureError"
    assert f"modes of {MI300X['uuid']}" in said["what"]
