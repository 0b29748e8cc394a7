"""The driver's line, and each GPU's."""

from __future__ import annotations

from pathlib import Path

import pytest
from sim.amd_smi import MI300X, RX_7900_XTX, SimulatedAmdDriver
from sim.nvml import H200, RTX_4090, SimulatedDriver

from kernel_matrix.platforms import Gpu, PlatformInventory
from kernel_matrix.platforms.check_result import CheckVerdict
from kernel_matrix.platforms.cuda import doctor_driver
from kernel_matrix.platforms.cuda.doctor_driver import examine_driver
from tests.hosts.doctor.clinic import Clinic
from tests.hosts.doctor.nouns import gpu


def inventory(*gpus: Gpu, reason: str = "") -> PlatformInventory:
    return PlatformInventory(gpus=gpus, reason=reason)


def test_each_gpu_has_a_line() -> None:
    _, driver, first, second = examine_driver(inventory(gpu(0), gpu(1, name="NVIDIA L4")))
    assert driver.found == "580.159.04, runs CUDA up to 13.0"
    assert first.subject == "GPU 0"
    assert first.found == "NVIDIA H200, GPU-0, compute capability 9.0, 141 GiB, driver 580.159.04"
    assert second.found.startswith("NVIDIA L4, GPU-1")


def test_no_driver_and_no_gpu_is_no_fault() -> None:
    _, finding = examine_driver(inventory(reason="libnvidia-ml.so.1 was not found"))
    assert (finding.verdict, finding.found) == (CheckVerdict.OK, "none, and so no GPU: libnvidia-ml.so.1 was not found")


@pytest.mark.parametrize(("file", "said"), [("/dev/dxg", "Windows"), ("/etc/nv_tegra_release", "Jetson")])
def test_machines_that_hide_much_are_named(
    file: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = doctor_driver._OTHER_MACHINES[Path(file)]
    monkeypatch.setattr(doctor_driver, "_OTHER_MACHINES", {tmp_path / "there": words, tmp_path / "absent": words})
    (tmp_path / "there").touch()
    (found,) = [one for one in examine_driver(inventory(gpu(0))) if one.subject == "machine"]
    assert (found.verdict, found.found.split()[0].rstrip(":")) == (CheckVerdict.WARN, said)


def test_a_driver_that_is_installed_and_does_not_open_is_a_fault(gpu_clinic: Clinic, driver: SimulatedDriver) -> None:
    driver.set(H200, init="!18")
    report = gpu_clinic.examine()
    assert (report.code, report.verdict("NVIDIA driver")) == (4, "fail")
    assert "different versions" in report["NVIDIA driver"]["found"]


def test_a_lost_gpu_is_a_fault_and_its_neighbour_is_listed(gpu_clinic: Clinic, driver: SimulatedDriver) -> None:
    driver.set({**H200, "lost": "!15"}, RTX_4090)
    report = gpu_clinic.examine("--sandbox", "process")
    assert report.verdict("GPUs") == "fail"
    assert "fell off the bus" in report["GPUs"]["found"]
    assert report.about("GPU 0") == []
    assert report.verdict("GPU 1") == "ok"


def test_links_of_several_gpus_have_a_line(gpu_clinic: Clinic, driver: SimulatedDriver) -> None:
    driver.set(H200, RTX_4090)
    found = gpu_clinic.examine("--sandbox", "process")["links"]["found"]
    assert found == "GPU 0-1: pcie (16 lanes, 31.51 GB/s each way)"
    driver.set(H200)
    assert gpu_clinic.examine("--sandbox", "process").about("links") == []


def test_a_lost_amd_gpu_is_a_fault_and_its_neighbour_is_listed(clinic: Clinic, amd_driver: SimulatedAmdDriver) -> None:
    amd_driver.set({**MI300X, "lost": "!31"}, RX_7900_XTX)
    report = Clinic(clinic.root, amd_driver.environment).examine("--sandbox", "process")
    assert report.verdict("GPUs") == "fail"
    assert report.about("GPU 0") == []
    assert "target gfx1100" in report["GPU 1"]["found"]


def test_an_amd_driver_that_does_not_open_is_a_fault(clinic: Clinic, amd_driver: SimulatedAmdDriver) -> None:
    amd_driver.set(MI300X, init="!34")
    report = Clinic(clinic.root, amd_driver.environment).examine("--sandbox", "process")
    assert (report.verdict("AMD driver"), report.code) == ("fail", 4)


def test_that_amd_gpus_were_not_tried_is_told(clinic: Clinic, amd_driver: SimulatedAmdDriver) -> None:
    amd_driver.set(MI300X)
    report = Clinic(clinic.root, amd_driver.environment).examine("--sandbox", "process")
    assert report["AMD driver"]["found"] == "6.12.12"
    assert report.verdict("AMD GPUs") == "warn"


def test_without_an_amd_gpu_nothing_is_said_of_amd(clinic: Clinic) -> None:
    assert [line for line in clinic.examine("--sandbox", "process").findings if "AMD" in line["subject"]] == []
