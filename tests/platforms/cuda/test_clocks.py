"""What a GPU's clocks can be locked to."""

import pytest
from sim.nvml import A100, GTX_1080, H200, RTX_4090


def test_choices_are_the_supported_lists_descending(driver, ask):
    driver.set(
        {**A100, "memory_clocks": "1215 1593", "graphics_clocks_1593": "210 1410 1275", "graphics_clocks_1215": 1}
    )
    assert ask("nvidia.clock_choices(gpu)", uuid=A100["uuid"]) == {
        "sm_mhz": [1410, 1275, 210],
        "memory_mhz": [1593, 1215],
        "base_sm_mhz": 1275,
        "consumer": False,
    }


def test_default_clock_equal_to_highest_is_not_the_base_clock(driver, ask):
    driver.set(H200)
    choices = ask("nvidia.clock_choices(gpu)")
    assert choices["sm_mhz"][0] == H200["default_clock_sm"]
    assert choices["base_sm_mhz"] is None


def test_a_device_that_tells_no_clocks_offers_none(driver, ask):
    driver.set(GTX_1080)
    assert ask("nvidia.clock_choices(gpu)", uuid=GTX_1080["uuid"], name=GTX_1080["name"]) == {
        "sm_mhz": [],
        "memory_mhz": [],
        "base_sm_mhz": None,
        "consumer": True,  # by its name: it tells no brand either
    }


@pytest.mark.parametrize(
    ("brand", "name", "consumer"),
    [
        (5, "NVIDIA GeForce RTX 4090", True),
        (15, "NVIDIA GeForce RTX 5090", True),
        (6, "NVIDIA TITAN V", True),
        (16, "NVIDIA TITAN RTX", True),
        (13, "NVIDIA RTX A6000", False),
        (12, "Quadro RTX 8000", False),
        (14, "NVIDIA L40S", False),
        (2, "Tesla V100-SXM2-16GB", False),
        (0, "NVIDIA TITAN V", True),
        (0, "NVIDIA Graphics Device", False),
    ],
)
def test_consumer_cards_are_told_by_brand_and_else_by_name(driver, ask, brand, name, consumer):
    driver.set({**RTX_4090, "brand": brand})
    assert ask("nvidia.clock_choices(gpu)", uuid=RTX_4090["uuid"], name=name)["consumer"] is consumer


def test_clocks_that_fail_to_be_read_are_an_error_and_not_none(driver, ask):
    driver.set({**H200, "memory_clocks": "!999"})
    said = ask("nvidia.clock_choices(gpu)")
    assert said["error"] == "InfrastructureError"
    assert f"clocks of {H200['uuid']}" in said["what"]
