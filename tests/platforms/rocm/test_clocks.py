"""What a GPU's clocks can be limited to."""

import pytest
from sim.amd_smi import MI300X, RX_7900_XTX


def test_choices_are_whole_numbers_and_no_memory_clock(driver, ask):
    driver.set({**MI300X, "min_clock_sm": 2098})
    assert ask("clock_choices(gpu)") == {
        "sm_mhz": [2100, 2099, 2098],
        "memory_mhz": [],
        "base_sm_mhz": None,
        "consumer": False,
    }


@pytest.mark.parametrize("absent", ["min_clock_sm", "max_clock_sm"])
def test_device_without_limits_offers_no_clocks(driver, ask, absent):
    driver.set({**MI300X, absent: None})
    assert ask("clock_choices(gpu)")["sm_mhz"] == []


@pytest.mark.parametrize(
    ("name", "consumer"),
    [(RX_7900_XTX["name"], True), (MI300X["name"], False), ("AMD Radeon PRO W7900", False)],
)
def test_consumer_cards_are_told_by_name(driver, ask, name, consumer):
    driver.set(MI300X)
    assert ask("clock_choices(gpu)", name=name)["consumer"] is consumer


def test_clocks_that_fail_to_be_read_are_an_error_and_not_none(driver, ask):
    driver.set({**MI300X, "max_clock_sm": "!12"})
    said = ask("clock_choices(gpu)")
    assert said["error"] == "InfrastructureError"
    assert f"clocks of {MI300X['uuid']}" in said["what"]
