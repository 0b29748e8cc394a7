"""The wheel: what it carries, and that a candidate cannot reach it where it is installed."""

from __future__ import annotations

import json
import shutil
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.own_python import ROOT, pip, run_python

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
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--wheel-dir", str(folder), str(ROOT), folder=folder)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def packages(wheel, tmp_path_factory):
    """A folder of packages, shown to candidates as one, in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("installed") / "site-packages"
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def kernel_matrix(folder, *arguments, packages):
    return run_python("-m", "kernel_matrix", *arguments, packages=str(packages), folder=folder)


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
