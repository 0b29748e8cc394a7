"""What dead runners left, found and left alone."""

from __future__ import annotations

from pathlib import Path

from sim.nvml import H200, SimulatedDriver

from tests.doctor.clinic import Clinic

DIES = """
import os, signal
from runner.core.vocab import ClockPolicy
from runner.gpus import vendor
from runner.lease import Terms
from runner.lease.clocks import clocks_held
from runner.lease.locks import lock_folder

(gpu,) = vendor("nvidia").inventory().gpus
terms = Terms(wait_s=1, clocks=ClockPolicy.LOCK, run_id="run-1")
with vendor("nvidia").opened(), clocks_held(gpu, terms, lock_folder()) as held:
    assert held.set_memory_mhz, held.reason
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_clocks_of_a_dead_runner_are_a_fault_until_they_are_swept(
    gpu_clinic: Clinic, driver: SimulatedDriver
) -> None:
    driver.set(H200)
    driver.environment |= {"KERNEL_MATRIX_LOCK_DIR": str(gpu_clinic.root / "locks"), "KERNEL_MATRIX_GPU_SETTINGS": ""}
    dead = driver.start(DIES)
    dead.communicate()
    assert dead.returncode == -9
    calls = driver.log()

    report = gpu_clinic.examine("--engine", "process")
    assert (report.code, report.verdict("leftovers")) == (4, "fail")
    assert report["leftovers"]["found"] == (
        f"SM clock, memory clock of {H200['uuid']}, set by run run-1, whose runner is gone"
    )
    assert "kernel-matrix sweep" in report["leftovers"]["advice"]
    assert driver.log() == calls

    assert gpu_clinic.call("sweep").returncode == 0
    assert gpu_clinic.examine("--engine", "process").verdict("leftovers") == "ok"


def test_a_folder_of_a_dead_run_is_a_warning_and_stays(clinic: Clinic) -> None:
    folder = clinic.root / "scratch" / "kernel-matrix-run-dead"
    folder.mkdir()
    (folder / "owner").write_text("1:1:no-such-boot")
    line = clinic.examine()["leftovers"]
    assert line["verdict"] == "warn"
    assert str(folder) in line["found"]
    assert folder.exists()


def test_a_journal_that_cannot_be_read_is_a_fault(clinic: Clinic) -> None:
    Path(clinic.root / "locks" / "GPU-1.settings.json").write_text("{")
    line = clinic.examine()["leftovers"]
    assert line["verdict"] == "fail"
    assert "something was set on GPU-1" in line["found"]
