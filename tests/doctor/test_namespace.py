"""The runner's PID namespace."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from sim.nvml import H200, SimulatedDriver

from tests.doctor.clinic import NOBODY, ROOT, Clinic

UNSHARE = ("unshare", "--pid", "--mount", "--mount-proc", "--fork")


@pytest.mark.parametrize(("policy", "verdict"), [("", "fail"), ("exclusive = false\n", "warn")])
def test_in_a_namespace_of_its_own_it_cannot_tell_whose_processes_are(
    gpu_clinic: Clinic, driver: SimulatedDriver, policy: str, verdict: str
) -> None:
    if subprocess.run((*UNSHARE, "true"), check=False, capture_output=True).returncode:
        pytest.skip("this user may not make PID namespaces")
    driver.set(H200)
    gpu_clinic.write_matrix(policy)
    done = subprocess.run(
        (*UNSHARE, sys.executable, "-m", "runner", "doctor", "--json", "--engine", "process"),
        cwd=gpu_clinic.root,
        env={**os.environ, **driver.environment, "PYTHONPATH": str(ROOT), "DOCKER_HOST": NOBODY},
        capture_output=True,
        text=True,
        check=False,
    )
    (line,) = [found for found in json.loads(done.stdout) if found["subject"] == "PID namespace"]
    assert line["verdict"] == verdict
    assert "--pid host" in line["advice"]


def test_the_hosts_own_is_well(gpu_clinic: Clinic, driver: SimulatedDriver) -> None:
    driver.set(H200)
    assert gpu_clinic.examine("--engine", "process").verdict("PID namespace") == "ok"
