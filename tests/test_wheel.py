"""The wheel: what it carries, and that a candidate cannot reach it where it is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SEARCHER = """\
import os
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) if os.path.exists({place!r}) else torch.zeros_like(x)
"""

MATRIX = """\
name = "installed"
dtypes = ["fp32"]

[[gpus]]
name = "cpu"
vendor = "cpu"

[[toolchains]]
name = "cpu"
torch = "{torch}"
triton = "{triton}"

[[problems]]
source = "folder"
path = "problems"

[protocol]
trials = 1
min_samples = 4
max_samples = 8
budget_s = 0.2
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling", reason="hatchling is not installed (the `dev` extra)")
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet")
    command = (sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder), str(ROOT))
    subprocess.run(command, check=True, cwd=folder, timeout=250)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def packages(wheel, tmp_path_factory):
    """A folder of packages, shown to candidates as one, in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("installed") / "site-packages"
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def kernel_matrix(folder, *arguments, packages):
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    command = (sys.executable, "-m", "kernel_matrix", *arguments)
    done = subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_wheel_carries_schemas_and_bundled_problems(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"kernel_matrix/_schemas/matrix.schema.json", "kernel_matrix/_problems/aten.json"} <= names
    for suite in ("vllm", "cublas"):
        problems = {path.relative_to(ROOT / "problems") for path in (ROOT / "problems" / suite).rglob("*.toml")}
        assert problems
        assert {f"kernel_matrix/_problems/{path}" for path in problems} <= names


@pytest.mark.parametrize("source", ["aten", "vllm", "cublas"])
def test_installed_package_reads_bundled_problems(packages, tmp_path, source):
    shown = json.loads(kernel_matrix(tmp_path, "problems", "list", "--source", source, "--json", packages=packages))
    assert shown


@pytest.mark.torch
def test_candidate_finds_no_reference_in_the_installed_package(packages, tmp_path):
    versions = {name: version(name).partition("+")[0] for name in ("torch", "triton")}
    (tmp_path / "matrix.toml").write_text(MATRIX.format(**versions))
    relu = tmp_path / "problems" / "relu"
    shutil.copytree(ROOT / "problems" / "relu", relu, ignore=shutil.ignore_patterns("candidates"))
    (relu / "candidates").mkdir()
    place = str(packages / "kernel_matrix" / "_problems" / "aten.json")
    assert Path(place).is_file()
    (relu / "candidates" / "searcher.py").write_text(SEARCHER.format(place=place))
    kernel_matrix(tmp_path, "run", "--sandbox", "process", packages=packages)
    (record,) = (tmp_path / "results" / "installed" / "records").glob("*.json")
    assert json.loads(record.read_text())["outcome"]["status"] == "incorrect_values"
