"""``kernel-matrix gpus`` on simulated GPUs."""

from __future__ import annotations

import json
import os
import signal

import pytest
from sim.nvml import GTX_1080, H200, RTX_4090

from tests.cli.terminal import on_terminal
from tests.hosts.doctor.clinic import Clinic
from tests.pipes import read_line

UUID = str(H200["uuid"])


@pytest.fixture
def clinic(clinic, driver):
    driver.set(H200, RTX_4090, GTX_1080)
    return Clinic(clinic.root, driver.environment)


def rows(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("words", [("gpus",), ("gpus", "list")])
def test_a_table_with_a_row_per_gpu(clinic, words):
    done = clinic.call(*words)
    assert (done.returncode, done.stderr) == (0, "")
    heading, h200, rtx, gtx, links = done.stdout.splitlines()
    assert heading.split()[:6] == ["GPU", "name", "UUID", "compute", "memory", "driver"]
    assert h200.split()[:9] == ["0", "NVIDIA", "H200", UUID, "9.0", "140", "GiB", "580.159.04", "1980"]
    assert h200.split()[9:] == ["3201", "118", "of", "700", "W", "41", "°C", "on", "off", "on", "none"]
    assert rtx.split()[-4:] == ["off", "–", "off", "none"]
    assert gtx.split()[-4:] == ["–", "–", "–", "none"]
    assert links == "links: GPU 0-1: pcie (16 lanes, 31.51 GB/s each way); GPU 0-2, 1-2: pcie"


def test_json_has_everything_and_why_some_of_it_is_not_known(clinic, driver):
    driver.change(UUID, compute=os.getpid())
    document = json.loads(clinic.call("gpus", "--json").stdout)
    h200, _, gtx = document["gpus"]
    assert (h200["uuid"], h200["index"], h200["error"]) == (UUID, 0, "")
    assert h200["modes"] == {"mig": False, "mps": False, "compute_mode": "default", "persistence": True, "ecc": True}
    assert h200["peak"]["source"] == "table"
    assert h200["details"]["bus_width_bits"] == 6144
    assert [process["pid"] for process in h200["processes"]] == [os.getpid()]
    assert [link["kind"] for link in h200["links"]] == ["pcie", "pcie"]
    assert gtx["details"]["vbios"] is None
    assert "not" in gtx["missing"]["vbios"]
    assert document["reason"] == ""


def test_a_lost_gpu_is_told_and_the_others_are_listed(clinic, driver):
    driver.change(UUID, lost="!15")
    done = clinic.call("gpus")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[1:3]] == ["1", "2"]
    assert "not listed: GPU 0" in done.stdout


def test_watch_gives_a_line_per_gpu_and_sample(clinic, driver):
    driver.change(UUID, event_reasons=4, compute=os.getpid())
    done = clinic.call("gpus", "watch", "--count", "2", "--every", "0.02")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split("  ")[1] for line in lines] == ["GPU 0", "GPU 1", "GPU 2"] * 2
    assert "  SM 1980 MHz  memory clock 3201 MHz  power 121 W  temperature 41 °C  busy 0 %" in lines[0]
    assert f"clock because of sw_power_cap  processes {os.getpid()} (" in lines[0]
    assert lines[2].endswith("SM 139 MHz  memory used 0.0 GiB  processes none")


def test_on_a_terminal_watch_is_a_table_that_changes_in_place(clinic, driver):
    driver.change(UUID, event_reasons=4)
    said = on_terminal(clinic.root, "gpus", "watch", "--count", "3", "--every", "0.02", **clinic.own())
    first, *others = [part for part in said.split("\x1b[1A") if "1980 MHz" in part]
    assert "NVIDIA H200" in first
    assert "sw_power_cap" in first
    assert len(others) >= 2, "for each later table the cursor goes back up"


@pytest.mark.parametrize("which", ["1", RTX_4090["uuid"], RTX_4090["uuid"][:-1]])
def test_one_gpu_is_watched_by_index_or_uuid(clinic, which):
    found = rows(clinic.call("gpus", "watch", "--gpu", which, "--count", "3", "--every", "0.02", "--json"))
    assert [(row["uuid"], row["sm_clock_mhz"]) for row in found] == [(RTX_4090["uuid"], 2520)] * 3
    assert found[0]["at_ns"] < found[1]["at_ns"] < found[2]["at_ns"]


@pytest.mark.parametrize(("which", "words"), [("7", "--gpu 7 names none of 0 ("), ("GPU-", "names more than one of")])
def test_a_gpu_that_is_not_one_is_exit_2(clinic, which, words):
    done = clinic.call("gpus", "watch", "--gpu", which)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_a_gpu_lost_while_it_is_watched_is_exit_4(clinic, driver):
    driver.change(UUID, lost="!15")
    driver.change(RTX_4090["uuid"], clock_sm=2000)
    assert clinic.call("gpus", "watch", "--count", "1").returncode == 0  # the driver lists it no more
    driver.change(UUID, lost=None)
    process = watching(clinic)
    assert '"index":0' in read_line(process)
    driver.change(UUID, lost="!15")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 4
    assert UUID in err
    assert "Traceback" not in err


def test_an_interrupt_ends_the_watch_cleanly(clinic):
    process = watching(clinic)
    read_line(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "stopped by SIGINT\n")


def watching(clinic):
    return clinic.start("gpus", "watch", "--json", "--every", "0.02")


def test_without_a_gpu_the_list_is_empty_and_the_rest_is_exit_3(clinic, driver):
    driver.set()
    listed = clinic.call("gpus")
    assert (listed.returncode, listed.stdout.startswith("no GPU: ")) == (0, True)
    assert json.loads(clinic.call("gpus", "--json").stdout)["gpus"] == []
    for verb in ("watch", "calibrate"):
        done = clinic.call("gpus", verb)
        assert (done.returncode, done.stdout) == (3, "")
        assert "this host has no GPU: " in done.stderr


@pytest.fixture
def gpu_field(docker_gpu_field):
    docker_gpu_field.write_gpu_matrix("tiny/honest")
    return docker_gpu_field


@pytest.mark.docker
@pytest.mark.timeout(1800)  # where the CPU image is missing, it is built first
def test_a_calibration_is_measured_in_a_container_kept_and_used(gpu_field):
    state = {"KERNEL_MATRIX_STATE_DIR": str(gpu_field.root / "state")}
    gpu_field.change(name="Unheard-of")
    matrix = gpu_field.root / "matrix.toml"
    matrix.write_text(matrix.read_text().replace(f'model = "{gpu_field.board.gpu["name"]}"', 'model = "*"'))
    assert calibrated(gpu_field, state) == "unknown"
    done = gpu_field.call("gpus", "calibrate", "--sandbox", "docker", **state)
    assert (done.returncode, done.stderr) == (0, "")
    heading, memory, *rates, kept = done.stdout.splitlines()
    assert heading == "GPU 0 (Unheard-of), measured with newest:"
    assert float(memory.split()[1].replace(",", "")) > 0
    assert {line.split()[0] for line in rates} <= {"fp64", "fp32", "tf32", "fp16", "bf16"}
    assert kept == f"  kept in {gpu_field.root}/state/calibrations/{gpu_field.board.uuid}.json"
    assert calibrated(gpu_field, state) == "calibration"
    assert (gpu_field.settings(), gpu_field.left_behind()) == ([], [])


def calibrated(field, state):
    """Return the source of the only GPU's peak rates."""
    return json.loads(field.call("gpus", "--json", **state).stdout)["gpus"][0]["peak"]["source"]


@pytest.mark.docker
@pytest.mark.timeout(1800)  # where the CPU image is missing, it is built first
def test_a_calibration_waits_for_nobody_longer_than_told(gpu_field):
    with gpu_field.stranger() as pid:
        done = gpu_field.call("gpus", "calibrate", "--sandbox", "docker", "--wait", "0")
    assert (done.returncode, done.stdout) == (75, "")
    assert f"in use by {pid} (sleep)" in done.stderr
    assert gpu_field.left_behind() == []


NO_TOOLCHAIN = "no toolchain here can run on GPU 2 (NVIDIA GeForce GTX 1080):"


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--gpu", "0", "--toolchain", "cu999"), 2, "it has: cu130"),
        (("--gpu", "0", "--matrix", "absent.toml"), 2, "absent.toml"),
        pytest.param(("--gpu", "2"), 3, f"{NO_TOOLCHAIN}\n  cu130: torch 2.11.0", marks=pytest.mark.torch),
    ],
)
def test_a_calibration_needs_a_toolchain(clinic, options, code, words):
    clinic.write_matrix()
    done = clinic.call("gpus", "calibrate", "--sandbox", "process", *options)
    assert done.returncode == code
    assert words in done.stderr
