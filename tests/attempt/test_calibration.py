"""A calibration's lease and probe, on a simulated GPU."""

from __future__ import annotations

import pytest
from sim.nvml import H200, SetState

from tests.attempt.gpu_stage import UUID, on_driver

PROGRAM = """
import json, os
from kernel_matrix.attempt.calibration import measure_device
from kernel_matrix.errors import KernelMatrixError
from kernel_matrix.lease import LeaseTerms

def joined_by_a_stranger(spec):
    World.here().change(UUID, compute=os.getppid())
    _LOOKS.await_more()
    return answers(**SAID)(spec)

def silent(spec):
    return ProcessExit(role=spec.role, code=1, log_tail="Traceback\\nno CUDA here\\n")

def looked_at(spec):
    seen.update(module=spec.module, args=spec.args, uid=spec.uid, gpu=spec.gpu.uuid, lends=spec.lends_memory)
    return answers(**SAID)(spec)

from tests.attempt.gpu_stage import _LOOKS
seen = {}
SAID = {"kind": "calibration", "bytes_per_s": 1e12, "flops_per_s": {"fp32": 2e13}}
stage.plays[Role.PROBE, "calibration"] = [PLAY]
bench = RunContext(run_id="r", sandbox=stage, sandbox_status=stage.status(), owner=owner_token(), scratch=stage.scratch)
try:
    found = measure_device(gpus()[0], None, bench, LeaseTerms(wait_s=0, run_id="r", cell_id="calibration"))
except KernelMatrixError as error:
    found = {"error": type(error).__name__, "what": error.what}
print(json.dumps({**found, **seen, "alive": stage.alive, "scratch": os.listdir(stage.scratch)}))
"""


@pytest.fixture
def calibrated(driver, tmp_path):
    """Runs a calibration with this probe and returns its result."""
    driver.set(H200)

    def played(play):
        found = on_driver(driver, tmp_path, PROGRAM.replace("PLAY", play))
        assert (found.pop("alive"), found.pop("scratch")) == (0, [])
        assert (driver.state(UUID), driver.log()) == (SetState(), [])
        return found

    return played


def test_what_the_probe_measured_is_the_answer(calibrated):
    found = calibrated("looked_at")
    assert (found["bytes_per_s"], found["flops_per_s"]) == (1e12, {"fp32": 2e13})
    assert (found["module"], found["gpu"]) == ("kernel_matrix.inside.probe", UUID)
    assert found["args"] == ["calibrate", "--out", "/out", "--device", "cuda"]
    assert (found["uid"] != 0, found["lends"]) == (True, True)


def test_calibrate_no_answer_raises_with_last_words(calibrated):
    found = calibrated("silent")
    assert found["error"] == "SandboxError"
    assert found["what"] == "the measurement left no answer: it ended with code 1, signal None: no CUDA here"


def test_a_calibration_in_company_does_not_count(calibrated):
    found = calibrated("joined_by_a_stranger")
    assert found["error"] == "GpuBusyError"
    assert "does not count: " in found["what"]
