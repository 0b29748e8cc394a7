"""``kernel-matrix doctor`` as a person or a script meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from sim.nvml import H200

from tests.baddays.field import CONTROL_GROUPS
from tests.cli.terminal import on_terminal
from tests.hosts.doctor.clinic import ROOT, Clinic
from tests.hosts.doctor.daemon import INFO, answering
from tests.hosts.doctor.nouns import install

DOCKER = {**INFO, "DiscoveredDevices": [{"Source": "cdi", "ID": f"nvidia.com/gpu={H200['uuid']}"}]}


@pytest.fixture
def gpu_clinic(clinic, driver):
    """On the simulated driver, with a container toolkit without known escapes."""
    programs = clinic.root / "bin"
    programs.mkdir()
    install(programs, "nvidia-ctk", "NVIDIA Container Toolkit CLI version 1.18.1\n")
    return Clinic(clinic.root, {**driver.environment, "PATH": f"{programs}:{os.environ['PATH']}"})


def test_doctor_on_a_healthy_host_exits_0_and_lists_each_part(gpu_clinic, driver, tmp_path):
    driver.set(H200)
    with answering(tmp_path, DOCKER) as daemon:
        done = gpu_clinic.call("doctor", "--sandbox", "docker", DOCKER_HOST=daemon)
    assert (done.returncode, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    assert "ok    Docker daemon: 29.1.0 for linux containers" in lines
    assert "ok    GPUs in containers: GPU 0: by a CDI specification" in lines
    assert "ok    container toolkit: 1.18.1" in lines
    assert f"ok    GPU 0: NVIDIA H200, {H200['uuid']}, compute capability 9.0, 140 GiB, driver 580.159.04" in lines
    assert "ok    MIG: GPU 0: off" in lines
    assert "ok    processes now: GPU 0: none" in lines
    others = [line for line in lines if not line.startswith(("ok  ", "      →"))]
    (warned,) = [line for line in others if CONTROL_GROUPS not in line]  # those may be of other tests
    assert warned.startswith("warn  matrix: there is no matrix.toml in this folder")
    assert last.endswith(" 0 fail")
    assert driver.log() == []


def test_a_line_that_fails_is_exit_4_with_what_to_do(gpu_clinic, driver, tmp_path):
    driver.set({**H200, "uuid": "GPU-of-today", "mig": "1 1"})
    with answering(tmp_path, {**DOCKER, "Runtimes": {"runc": {}}}) as daemon:
        done = gpu_clinic.call("doctor", DOCKER_HOST=daemon)
    assert done.returncode == 4
    assert "fail  CDI: stale: the specification does not list GPU-of-today\n      → renew it" in done.stdout
    assert "fail  MIG: GPU 0: on" in done.stdout
    assert driver.log() == []


def test_json_is_a_list_of_findings(clinic):
    done = clinic.call("doctor", "--json")
    findings = json.loads(done.stdout)
    assert {frozenset(finding) for finding in findings} == {frozenset({"subject", "verdict", "found", "advice"})}
    assert {finding["verdict"] for finding in findings} <= {"ok", "warn", "fail"}
    assert done.returncode == (4 if any(finding["verdict"] == "fail" for finding in findings) else 0)


@pytest.mark.docker
def test_this_host_as_it_is_can_be_examined(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"}
    done = subprocess.run(
        (sys.executable, "-m", "kernel_matrix", "doctor", "--json"),
        cwd=ROOT,
        env={**environment, "TMPDIR": str(tmp_path), "KERNEL_MATRIX_LOCK_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    verdicts = {finding["subject"]: finding["verdict"] for finding in json.loads(done.stdout)}
    assert done.stderr == ""
    assert (verdicts["Docker daemon"], verdicts["matrix"]) == ("ok", "ok")
    assert not [finding for finding in json.loads(done.stdout) if "the check itself failed" in finding["found"]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--sandbox", "podman"), "allowed: auto, docker, unpacked, process"),
        (("--matrix", "absent.toml"), "absent.toml"),
    ],
)
def test_what_cannot_be_understood_is_exit_2(clinic, options, words):
    done = clinic.call("doctor", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_verdicts_on_a_terminal_are_coloured_only_if_wanted(clinic, no_color, coloured):
    said = on_terminal(clinic.root, "doctor", **clinic.own(NO_COLOR=no_color))
    assert "ok    Python: " in (said.replace("\x1b[32m", "").replace("\x1b[0m", "") if coloured else said)
    assert ("\x1b[32mok" in said) == coloured
