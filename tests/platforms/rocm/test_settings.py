"""The only place that changes anything: what it asks the driver for, what a refusal means, and the one gate."""

import ast
import inspect

import pytest
from sim.amd_smi import MI300X, PERF_DETERMINISM, PERF_MANUAL, PERF_STABLE_STD, RX_7900_XTX, SetState

from kernel_matrix.platforms import DeviceSettings
from kernel_matrix.platforms.rocm.settings import settings

CALLS = {
    "lock_sm_clock": "settings().lock_sm_clock(gpu, 1500)",
    "lock_memory_clock": "settings().lock_memory_clock(gpu, 1300)",
    "reset_sm_clock": "settings().reset_sm_clock(gpu)",
    "reset_memory_clock": "settings().reset_memory_clock(gpu)",
}
"""Every setting that the devices have → a call of it."""
COMPUTE_MODE = "settings().set_compute_mode(gpu, ComputeMode.EXCLUSIVE_PROCESS)"

every_setting = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
every_call = pytest.mark.parametrize("call", [*CALLS.values(), COMPUTE_MODE])


def calls(driver):
    """The log without its PIDs."""
    return [line.partition(" ")[2] for line in driver.log()]


def test_every_setting_of_the_contract_is_tried_here():
    assert {*CALLS, "set_compute_mode"} == {name for name in vars(DeviceSettings) if not name.startswith("_")}


def test_the_sm_clock_is_limited_in_determinism_mode(driver, ask):
    driver.set(MI300X)
    assert ask("settings().lock_sm_clock(gpu, 1500)") is None
    assert driver.state(MI300X["uuid"]) == SetState(sm_locked=(0, 1500), perf_level=PERF_DETERMINISM)
    assert ask("clocks(gpu)") == [1500, 1300]


def test_no_value_means_the_drivers_profiling_clock(driver, ask):
    driver.set(RX_7900_XTX)
    ask("settings().lock_sm_clock(gpu, None)", uuid=RX_7900_XTX["uuid"])
    assert driver.state(RX_7900_XTX["uuid"]) == SetState(sm_locked=(1500, 1500), perf_level=PERF_STABLE_STD)


def test_device_without_profiling_clock_does_not_support_none(driver, ask):
    driver.set(MI300X)
    said = ask("settings().lock_sm_clock(gpu, None)")
    assert (said["error"], said["permitted"], said["supported"]) == ("GpuSettingError", False, False)
    assert driver.state(MI300X["uuid"]) == SetState()


def test_the_memory_clock_is_limited_from_above(driver, ask):
    driver.set(MI300X)
    assert ask("settings().lock_memory_clock(gpu, 900)") is None
    assert driver.state(MI300X["uuid"]) == SetState(memory_locked=(0, 900), perf_level=PERF_MANUAL)
    assert ask("clocks(gpu)") == [2100, 900]


def test_limit_of_memory_clock_does_not_end_that_of_sm_clock(driver, ask):
    driver.set(MI300X)
    ask("settings().lock_sm_clock(gpu, 1500)")
    said = ask("settings().lock_memory_clock(gpu, 1300)")
    assert (said["error"], said["supported"]) == ("GpuSettingError", False)
    assert "end the limit of the SM clock" in said["what"]
    assert driver.state(MI300X["uuid"]).sm_locked == (0, 1500)
    assert len(driver.log()) == 1


@pytest.mark.parametrize("reset", ["reset_sm_clock", "reset_memory_clock"])
@pytest.mark.parametrize("lock", ["lock_sm_clock", "lock_memory_clock"])
def test_each_reset_gives_all_clocks_back(driver, ask, lock, reset):
    driver.set(MI300X)
    ask(CALLS[lock])
    assert ask(CALLS[reset]) is None
    assert driver.state(MI300X["uuid"]).is_given_back


def test_clock_out_of_range_may_have_changed_the_level(driver, ask):
    driver.set(MI300X)
    said = ask("settings().lock_sm_clock(gpu, 9000)")
    assert (said["permitted"], said["supported"]) == (True, True), "so that the caller resets it"
    assert driver.state(MI300X["uuid"]).perf_level == PERF_DETERMINISM


@pytest.mark.parametrize("call", ["lock_sm_clock", "lock_memory_clock"])
def test_level_that_is_not_entered_is_read_back_as_failure(driver, ask, call):
    driver.set({**MI300X, "level_ignored": 1})
    said = ask(CALLS[call])
    assert (said["error"], said["permitted"], said["supported"]) == ("GpuSettingError", True, True)
    assert "the performance level is 0" in said["what"]


def test_reset_that_is_ignored_is_read_back_as_failure(driver, ask):
    driver.set({**MI300X, "reset_ignored": 1})
    ask(CALLS["lock_sm_clock"])
    said = ask(CALLS["reset_sm_clock"])
    assert (said["error"], said["permitted"], said["supported"]) == ("GpuSettingError", True, True)
    assert driver.state(MI300X["uuid"]).sm_locked == (0, 1500)


def test_device_that_does_not_tell_its_level_is_believed(driver, ask):
    driver.set({**MI300X, "perf_level": None})
    assert ask(CALLS["lock_sm_clock"]) is None
    assert driver.state(MI300X["uuid"]).sm_locked == (0, 1500)


def test_a_lock_that_is_not_obeyed_shows_in_the_clocks(driver, ask):
    driver.set({**MI300X, "lock_ignored": 1})
    assert ask(CALLS["lock_sm_clock"]) is None
    assert ask("clocks(gpu)") == [2100, 1300]
    assert driver.state(MI300X["uuid"]).sm_locked == (0, 1500)


@every_setting
def test_a_driver_that_does_not_open_is_a_failed_setting(driver, ask, call):
    driver.set(MI300X, init="!34")
    said = ask(call)
    assert (said["error"], said["permitted"]) == ("GpuSettingError", True)
    assert "modprobe amdgpu" in said["next_step"]


def test_every_setting_goes_through_the_gate():
    tree = ast.parse(inspect.getsource(inspect.getmodule(type(settings()))))
    through = {
        id(handed)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_change"
        for handed in node.args
    }
    setters = [
        node for node in ast.walk(tree) if isinstance(node, ast.Constant) and str(node.value).startswith("amdsmi_set")
    ]
    assert len(setters) == len(CALLS) + 1  # the SM clock has two
    assert [node.value for node in setters if id(node) not in through] == []
