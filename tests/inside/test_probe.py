"""The probe's process: one question, one file, and the exit code 0 whenever the file is there."""

import json
import subprocess
import sys

import pytest

from kernel_matrix.inside.probe import PROBE_NAME, main


def answer(folder):
    assert [path.name for path in folder.iterdir()] == [PROBE_NAME]
    return json.loads((folder / PROBE_NAME).read_text())


HEALTH = {"kind", "passed", "reason", "sm_mhz", "seconds"}


def test_a_gpu_is_asked_for_its_health(cuda, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    done = cuda.run(
        "-m", "kernel_matrix.inside.probe", "health", "--device", "cuda", "--out", str(out), wrong="mhz=1500"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = answer(out)
    assert set(found) == HEALTH
    assert (found["kind"], found["passed"], found["sm_mhz"]) == ("health", True, 1498.5)


def test_a_gpu_that_is_not_well_is_an_answer_too(cuda, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    assert (
        cuda.run(
            "-m", "kernel_matrix.inside.probe", "health", "--device", "cuda", "--out", str(out), wrong="flip=3"
        ).returncode
        == 0
    )
    found = answer(out)
    assert (found["passed"], found["sm_mhz"]) == (False, None)
    assert "known answers" in found["reason"]


def test_a_processor_is_asked_for_its_health(tmp_path):
    assert main(["health", "--device", "cpu", "--out", str(tmp_path)]) == 0
    found = answer(tmp_path)
    assert set(found) == HEALTH
    assert (found["passed"], found["reason"], found["sm_mhz"]) == (True, "", None)


def test_health_does_without_torch(tmp_path):
    program = (
        "import sys\nfrom kernel_matrix.inside.probe import main\nmain(sys.argv[1:])\nassert 'torch' not in sys.modules"
    )
    subprocess.run((sys.executable, "-c", program, "health", "--device", "cuda", "--out", tmp_path), check=True)
    assert answer(tmp_path)["kind"] == "health"


@pytest.mark.torch
def test_a_processor_is_calibrated(tmp_path):
    assert main(["calibrate", "--device", "cpu", "--seconds", "0.1", "--out", str(tmp_path)]) == 0
    found = answer(tmp_path)
    assert set(found) == {"kind", "device_name", "bytes_per_s", "flops_per_s", "torch", "cuda", "seconds"}
    assert found["kind"] == "calibration"
    assert found["bytes_per_s"] > 0


def test_no_file_and_no_success_where_it_cannot_be_written(cuda, tmp_path):
    done = cuda.run(
        "-m", "kernel_matrix.inside.probe", "health", "--device", "cuda", "--out", str(tmp_path / "nowhere")
    )
    assert done.returncode != 0
    assert "FileNotFoundError" in done.stderr


@pytest.mark.gpu
@pytest.mark.torch
def test_a_real_gpu_is_calibrated(tmp_path):
    assert main(["calibrate", "--device", "cuda", "--seconds", "2", "--out", str(tmp_path)]) == 0
    found = answer(tmp_path)
    assert found["bytes_per_s"] > 1e10
    assert found["flops_per_s"]["fp32"] > 1e11
