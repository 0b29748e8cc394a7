"""Modes that decide whether anybody can be alone on a GPU."""

import os
import shutil
import subprocess

import pytest
from sim.nvml import GTX_1080, H200


def test_a_plain_gpu_has_its_modes_off(driver, ask):
    driver.set(H200)
    assert ask("nvidia.modes(gpu)") == {
        "mig": False,
        "mps": False,
        "compute_mode": "default",
        "persistence": True,
        "ecc": True,
    }


def test_modes_are_the_current_ones_and_not_the_pending_ones(driver, ask):
    driver.set({**H200, "mig": "1 0", "ecc": "0 1", "persistence": 0})
    modes = ask("nvidia.modes(gpu)")
    assert (modes["mig"], modes["ecc"], modes["persistence"]) == (True, False, False)


@pytest.mark.parametrize(
    ("number", "mode"), [(0, "default"), (1, "exclusive_thread"), (2, "prohibited"), (3, "exclusive_process")]
)
def test_each_compute_mode_has_its_name(driver, ask, number, mode):
    driver.set({**H200, "compute_mode": number})
    assert ask("nvidia.modes(gpu)")["compute_mode"] == mode


def test_modes_that_a_device_does_not_have_are_null(driver, ask):
    driver.set(GTX_1080)
    assert ask("nvidia.modes(gpu)", uuid=GTX_1080["uuid"]) == {
        "mig": None,
        "mps": False,
        "compute_mode": None,
        "persistence": None,
        "ecc": None,
    }


@pytest.mark.parametrize("mode", ["mig", "ecc", "compute", "mps", "compute_mode", "persistence"])
def test_a_mode_that_cannot_be_read_is_an_error_and_not_off(driver, ask, mode):
    driver.set({**H200, mode: "!999"})
    said = ask("nvidia.modes(gpu)")
    assert said["error"] == "InfrastructureError"
    assert f"modes of {H200['uuid']}" in said["what"]


def test_a_client_of_an_mps_server_means_mps(driver, ask):
    driver.set({**H200, "mps": "4242"})
    assert ask("nvidia.modes(gpu)")["mps"] is True


def test_a_process_that_is_an_mps_server_means_mps(driver, ask, tmp_path):
    server = tmp_path / "nvidia-cuda-mps-server"
    shutil.copyfile(shutil.which("sleep"), server)
    server.chmod(0o755)
    with subprocess.Popen((server, "60")) as process:
        try:
            driver.set({**H200, "compute": f"{os.getpid()} {process.pid}"})
            assert ask("nvidia.modes(gpu)")["mps"] is True
        finally:
            process.kill()


def test_other_processes_and_dead_ones_mean_no_mps(driver, ask):
    with subprocess.Popen(("true",)) as process:
        pass
    driver.set({**H200, "compute": f"{os.getpid()} {process.pid}"})
    assert ask("nvidia.modes(gpu)")["mps"] is False
