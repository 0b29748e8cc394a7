"""The library and its errors, for every question that is asked of a device."""

import pytest
from sim.amd_smi import MI300X, RX_7900_XTX

from tests.platforms.rocm.conftest import IMPORTS

QUESTIONS = [
    f"{name}(gpu)" for name in ("snapshot", "clocks", "processes", "details", "modes", "clock_choices", "sampler")
]
"""Everything that reads from one device."""


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("code", [31, 12, 0xFFFFFFFF])
def test_a_gpu_that_no_longer_answers_is_lost_whatever_is_asked(driver, ask, question, code):
    driver.set(RX_7900_XTX, {**MI300X, "lost": f"!{code}"})
    said = ask(question)
    assert said["error"] == "GpuLostError"
    assert MI300X["uuid"] in said["what"]
    assert "dmesg" in said["next_step"]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_gpu_that_the_driver_no_longer_knows_is_lost(driver, ask, question):
    driver.set(MI300X)
    said = ask(question, uuid="45ff74a1-nowhere")
    assert said["error"] == "GpuLostError"
    assert "45ff74a1-nowhere" in said["what"]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_driver_that_does_not_open_is_no_lost_gpu(driver, ask, question):
    driver.set(MI300X, init="!34")
    said = ask(question)
    assert said["error"] == "InfrastructureError"
    assert "modprobe amdgpu" in said["next_step"]


def test_a_user_without_access_does_not_lose_the_gpu(driver, ask):
    driver.set({**MI300X, "lost": "!10"})
    said = ask("modes(gpu)")
    assert said["error"] == "InfrastructureError"
    assert "groups render and video" in said["next_step"]


def test_the_library_is_open_exactly_as_long_as_asked(driver):
    driver.set(MI300X)
    program = """
from kernel_matrix.platforms.rocm.smi_library import SmiError, devices

def is_open():
    try:
        devices()
    except SmiError:
        return False
    return True

seen = []
with opened():
    seen.append(is_open())
    inventory()
    seen.append(is_open())
seen.append(is_open())
try:
    with opened():
        raise KeyboardInterrupt
except KeyboardInterrupt:
    seen.append(is_open())
print(json.dumps(seen))
"""
    assert driver.ask(IMPORTS + program) == [True, True, False, False]
