"""The only place that changes anything: what it asks the driver for, what a refusal means, and the one gate."""

import ast
import inspect

import pytest
from sim.nvml import H200, SetState

from kernel_matrix.platforms import DeviceSettings
from kernel_matrix.platforms.cuda.settings import settings

CALLS = {
    "lock_sm_clock": "nvidia.settings().lock_sm_clock(gpu, 1500)",
    "lock_memory_clock": "nvidia.settings().lock_memory_clock(gpu, 1593)",
    "reset_sm_clock": "nvidia.settings().reset_sm_clock(gpu)",
    "reset_memory_clock": "nvidia.settings().reset_memory_clock(gpu)",
    "set_compute_mode": "nvidia.settings().set_compute_mode(gpu, ComputeMode.EXCLUSIVE_PROCESS)",
}
"""Every setting → a call of it."""

every_setting = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def calls(driver):
    """The log without its PIDs."""
    return [line.partition(" ")[2] for line in driver.log()]


def test_every_setting_of_the_contract_is_tried_here():
    assert CALLS.keys() == {name for name in vars(DeviceSettings) if not name.startswith("_")}


def test_the_sm_clock_is_locked_to_exactly_one_value(driver, ask):
    driver.set(H200)
    assert ask("nvidia.settings().lock_sm_clock(gpu, 1500)") is None
    assert driver.state(H200["uuid"]) == SetState(sm_locked=(1500, 1500))


def test_no_value_means_the_drivers_symbolic_base_clock(driver, ask):
    driver.set(H200)
    ask("nvidia.settings().lock_sm_clock(gpu, None)")
    assert calls(driver) == [f"nvmlDeviceSetGpuLockedClocks {H200['uuid']} tdp tdp -> 0"]
    assert driver.state(H200["uuid"]) == SetState(sm_locked=(H200["tdp_clock"], H200["tdp_clock"]))


def test_the_memory_clock_is_locked_to_exactly_one_value(driver, ask):
    driver.set(H200)
    ask("nvidia.settings().lock_memory_clock(gpu, 1593)")
    assert driver.state(H200["uuid"]) == SetState(memory_locked=(1593, 1593))


def test_each_reset_gives_back_its_own_clock(driver, ask):
    driver.set(H200)
    for call in ("lock_sm_clock(gpu, 1500)", "lock_memory_clock(gpu, 1593)", "reset_sm_clock(gpu)"):
        ask(f"nvidia.settings().{call}")
    assert driver.state(H200["uuid"]) == SetState(memory_locked=(1593, 1593))
    ask("nvidia.settings().reset_memory_clock(gpu)")
    assert driver.state(H200["uuid"]) == SetState()


@pytest.mark.parametrize(
    ("mode", "number"), [("DEFAULT", 0), ("EXCLUSIVE_THREAD", 1), ("PROHIBITED", 2), ("EXCLUSIVE_PROCESS", 3)]
)
def test_each_compute_mode_is_set_by_its_number(driver, ask, mode, number):
    driver.set(H200)
    ask(f"nvidia.settings().set_compute_mode(gpu, ComputeMode.{mode})")
    assert driver.state(H200["uuid"]) == SetState(compute_mode=number)
    assert ask("nvidia.modes(gpu)")["compute_mode"] == mode.lower()


def test_a_gpu_that_is_lost_during_the_call_is_lost(driver, ask):
    driver.set({**H200, "reset": "!15"})
    assert ask(CALLS["reset_sm_clock"])["error"] == "GpuLostError"


@every_setting
def test_a_driver_that_does_not_open_is_a_failed_setting(driver, ask, call):
    driver.set(H200, init="!18")
    said = ask(call)
    assert (said["error"], said["permitted"]) == ("GpuSettingError", True)
    assert "different versions" in said["next_step"]


def test_every_setting_goes_through_the_gate():
    tree = ast.parse(inspect.getsource(inspect.getmodule(type(settings()))))
    through = {
        id(handed)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_change"
        for handed in node.args
    }
    setters = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith("nvml")]
    assert len(setters) == len(CALLS)
    assert [node.attr for node in setters if id(node) not in through] == []
