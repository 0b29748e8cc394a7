"""Cells in a Python environment of this host in place of an image."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sim.nvml import H200

from tests.baddays.field import ROOT, new_field
from tests.environments.venvs import make_venv, packages_of
from tests.pipes import lines_of

pytestmark = pytest.mark.torch

CANDIDATE = """
import only_here
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x + x + only_here.ONE
"""


WAITING = """
import time
from pathlib import Path

import only_here

while not Path(only_here.__file__).with_name("go").exists():
    time.sleep(0.01)
"""


def write_package(venv, version):
    """Install a package that no other Python of this machine has."""
    packages = packages_of(venv)
    (packages / "only_here.py").write_text("ONE = 1\n")
    info = packages / "only_here.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: only-here\nVersion: {version}\n")


@pytest.fixture
def field(tmp_path):
    """A matrix whose toolchain is a virtual environment beside it, which has a package of its own."""
    with new_field(tmp_path) as made:
        venv = made.root / "venv"
        make_venv(venv)
        write_package(venv, "1.0")
        torch = [folder for folder in map(Path, sys.path) if (folder / "torch" / "version.py").is_file()]
        (packages_of(venv) / "torch.pth").write_text(f"{torch[0]}\n")
        (made.candidates / "honest.py").write_text(CANDIDATE)
        made.write_matrix("tiny/honest")
        matrix = made.root / "matrix.toml"
        toolchain, rest = matrix.read_text().split("[[toolchains]]")[1].split("\n[[", 1)
        assert "torch" in toolchain
        start = matrix.read_text().split("[[toolchains]]")[0]
        matrix.write_text(f'{start}[[toolchains]]\nname = "here"\nenvironment = "venv"\nplatform = "cpu"\n[[{rest}')
        yield made


def test_cell_runs_in_its_environment_and_says_so(field):
    ran = field.run()
    assert ran.returncode == 0, ran.stderr
    (record,) = field.records()
    assert record["outcome"]["status"] == "passed", record["outcome"]
    host = record["host"]
    assert (host["engine"], host["image"]["state"]) == ("process", "environment")
    assert host["image"]["reference"] == str(field.root / "venv")
    assert host["environment"]["distributions"]["only-here"] == "1.0"

    # Nothing to do, until the environment changes.
    assert field.run("--rerun", "stale").returncode == 0
    assert len(field.records()) == 1
    write_package(field.root / "venv", "2.0")
    path = next((field.store / "records").glob("*.json"))
    again = field.call("reproduce", str(path), "--json")
    assert again.returncode == 4
    assert "only-here: 1.0 → 2.0" in again.stderr
    assert field.run("--rerun", "stale").returncode == 0
    changed = field.records()[-1]
    assert len(field.records()) == 2
    assert changed["host"]["environment"]["distributions"]["only-here"] == "2.0"
    assert changed["cell_id"] == record["cell_id"]


@pytest.fixture
def gpu_without_docker(field, driver):
    """The same on a simulated GPU, for which the environment's PyTorch says that it was built."""
    driver.set(H200)
    torch = packages_of(field.root / "venv") / "torch"
    for folder in (torch, torch.with_name("torch-2.11.0.dist-info")):
        folder.mkdir()
    # Without an __init__.py, so that Python imports the real one.
    (torch / "version.py").write_text("cuda = '13.0'\n")
    (torch.with_name("torch-2.11.0.dist-info") / "METADATA").write_text("Name: torch\nVersion: 2.11.0+cu130\n")
    matrix = field.root / "matrix.toml"
    gpu = 'name = "h200"\nmodel = "NVIDIA H200*"\n'
    text = matrix.read_text().replace('name = "cpu"\nvendor = "cpu"\n', gpu).replace('platform = "cpu"\n', "")
    matrix.write_text(text)
    return replace(field, environment=driver.environment, program=(str(ROOT / "tests" / "sim" / "launch.py"),))


def test_gpu_needs_no_docker(gpu_without_docker):
    ran = gpu_without_docker.call("run", "--sandbox", "process")
    assert ran.returncode == 0, ran.stderr
    (record,) = gpu_without_docker.records()
    host = record["host"]
    assert (record["outcome"]["status"], host["engine"]) == ("passed", "process")
    assert (host["device"]["name"], host["exclusive"]) == ("NVIDIA H200", "proven")
    assert host["environment"]["distributions"]["torch"] == "2.11.0+cu130"
    assert host["environment"]["programs"]["cuda driver"] == host["device"]["driver"]


def test_result_does_not_count_if_its_environment_changed(field):
    path = field.candidates / "honest.py"
    path.write_text(WAITING + CANDIDATE)
    with field.start("run", "--json") as run:
        next(line for line in lines_of(run) if json.loads(line).get("event") == "cell_started")
        write_package(field.root / "venv", "2.0")
        (packages_of(field.root / "venv") / "go").touch()
        run.communicate()
    (record, *_) = field.records()
    assert record["outcome"]["status"] == "infra_error"
    assert "was changed while cells ran in it: only-here: 1.0 → 2.0" in record["outcome"]["evidence"]["message"]


def test_environment_without_torch_is_one_line(field):
    (packages_of(field.root / "venv") / "torch.pth").unlink()
    ran = field.call("run", "--sandbox", "process")
    assert ran.returncode == 3
    assert "has no PyTorch" in ran.stderr
    planned = field.call("plan", "--json")
    assert planned.returncode == 0
    assert "has no PyTorch" in json.dumps(json.loads(planned.stdout))
