"""Who is on a GPU, by its driver's list."""

import os

import pytest
from sim.amd_smi import MI300X, RX_7900_XTX


def test_processes_are_those_of_the_one_gpu_ascending(driver, ask):
    driver.set({**RX_7900_XTX, "compute": "1"}, {**MI300X, "compute": "900 70:1048576"})
    assert ask("processes(gpu)") == [70, 900]


@pytest.mark.parametrize("count", [64, 65, 100])
def test_more_processes_than_the_first_buffer_are_all_listed(driver, ask, count):
    pids = list(range(1000, 1000 + count))
    driver.set({**MI300X, "compute": " ".join(map(str, pids))})
    assert ask("processes(gpu)") == pids


def test_processes_that_vanish_between_two_calls_are_gone(driver, ask):
    driver.set(MI300X)
    with driver.start("input()") as tenant:
        driver.occupy(MI300X["uuid"], tenant.pid)
        assert ask("processes(gpu)") == [tenant.pid]
        tenant.kill()
        os.waitid(os.P_PID, tenant.pid, os.WEXITED | os.WNOWAIT)
        assert ask("processes(gpu)") == []


@pytest.mark.parametrize("code", [2, 10])
def test_processes_hidden_by_the_driver_are_an_error(driver, ask, code):
    driver.set({**MI300X, "compute": f"!{code}"})
    said = ask("processes(gpu)")
    assert said["error"] == "InfrastructureError"
    assert f"processes on {MI300X['uuid']}" in said["what"]


def test_list_of_unknown_layout_is_an_error_and_not_nobody(driver, ask):
    driver.set({**MI300X, "compute": "42"}, version="27 0 0")
    said = ask("processes(gpu)")
    assert said["error"] == "InfrastructureError"
    assert "ROCm" in said["next_step"]


def test_processes_of_library_25_have_the_same_layout(driver, ask):
    driver.set({**MI300X, "compute": "42 43"}, version="25 5 1")
    assert ask("processes(gpu)") == [42, 43]
