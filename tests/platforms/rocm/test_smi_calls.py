"""The library and its errors, for every question that is asked of a device."""

import pytest
from sim.amd_smi import MI300X, RX_7900_XTX

from tests.platforms.rocm.conftest import IMPORTS

QUESTIONS = ("snapshot", "clocks", "processes", "details", "modes", "clock_choices", "sampler")
"""Everything that reads from one device."""

ALL_QUESTIONS = """
def error_of(question):
    try:
        question(gpu)
    except InfrastructureError as error:
        return {{"error": type(error).__name__, **vars(error)}}

gpu = Gpu(platform="rocm", uuid={uuid!r}, name="the GPU")
print(json.dumps({{question: error_of(globals()[question]) for question in {questions}}}))
"""


def errors_of_all(driver, uuid=MI300X["uuid"]):
    """Question → error that it raised, for every question in one program."""
    return driver.ask(IMPORTS + ALL_QUESTIONS.format(uuid=uuid, questions=QUESTIONS))


@pytest.mark.parametrize("code", [31, 12, 0xFFFFFFFF])
def test_a_gpu_that_no_longer_answers_is_lost_whatever_is_asked(driver, code):
    driver.set(RX_7900_XTX, {**MI300X, "lost": f"!{code}"})
    for question, error in errors_of_all(driver).items():
        assert error["error"] == "GpuLostError", question
        assert MI300X["uuid"] in error["what"]
        assert f"AMD SMI error {code}" in error["what"]
        assert "dmesg" in error["next_step"]


def test_a_gpu_that_the_driver_no_longer_knows_is_lost(driver):
    driver.set(MI300X)
    for question, error in errors_of_all(driver, "45ff74a1-nowhere").items():
        assert error["error"] == "GpuLostError", question
        assert "45ff74a1-nowhere" in error["what"]


def test_a_driver_that_does_not_open_is_no_lost_gpu(driver):
    driver.set(MI300X, init="!34")
    for question, error in errors_of_all(driver).items():
        assert error["error"] == "InfrastructureError", question
        assert "modprobe amdgpu" in error["next_step"]


def test_a_user_without_access_does_not_lose_the_gpu(driver, ask):
    driver.set({**MI300X, "lost": "!10"})
    said = ask("modes(gpu)")
    assert said["error"] == "InfrastructureError"
    assert "groups render and video" in said["next_step"]


def test_the_library_is_open_exactly_as_long_as_asked(driver):
    driver.set(MI300X)
    program = """
from kernel_matrix.platforms.rocm.inside.smi_library import SmiError, devices

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
