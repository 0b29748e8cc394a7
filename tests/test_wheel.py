"""The wheel: what it carries, and that a candidate cannot reach it where it is installed."""

from __future__ import annotations

import json
import shutil
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from kernel_matrix.conformance.cheats import bundled_cheats
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


@pytest.mark.parametrize("folder", ["schemas", "problems", "images", "docs"])
def test_wheel_carries_every_file_that_git_keeps(wheel, folder):
    names = set(zipfile.ZipFile(wheel).namelist())
    kept = {path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*") if path.is_file()}
    kept = {path for path in kept if "__pycache__" not in path.parts}
    assert kept
    assert {f"kernel_matrix/_{folder}/{path}" for path in kept} <= names
    assert "kernel_matrix/py.typed" in names


def test_release_files_are_what_an_index_accepts(wheel, tmp_path):
    pytest.importorskip("twine", reason="twine is not installed (the `dev` extra)")
    run_python("-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path), packages="")
    (source,) = tmp_path.glob("*.tar.gz")
    assert source.stat().st_size < 10e6  # the example records stay out
    checked = run_python("-m", "twine", "check", "--strict", str(wheel), str(source), packages="")
    assert checked.count("PASSED") == 2


@pytest.mark.parametrize("example", ["cpu", "gpu", "kernel", "nightly"])
def test_installed_package_starts_projects(packages, tmp_path, example):
    kernel_matrix(tmp_path, "init", "--example", example, "mine", packages=packages)
    planned = json.loads(kernel_matrix(tmp_path / "mine", "plan", "--json", packages=packages))
    assert planned["cells"]


def test_installed_package_shows_its_documentation(packages, tmp_path):
    assert kernel_matrix(tmp_path, "docs", "matrix", packages=packages).startswith("# matrix.toml\n")


@pytest.mark.torch
def test_installed_package_judges_a_kernel_without_a_matrix(packages, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shutil.copy(ROOT / "problems" / "relu" / "candidates" / "torch_clamp.py", tmp_path / "mine.py")
    shown = kernel_matrix(tmp_path, "try", "mine.py", "--problem", "relu", "--json", packages=packages)
    assert json.loads(shown)["status"] == "passed"


@pytest.mark.parametrize("source", ["aten", "vllm", "cublas", "folder"])
def test_installed_package_reads_bundled_problems(packages, tmp_path, source):
    shown = json.loads(kernel_matrix(tmp_path, "problems", "list", "--source", source, "--json", packages=packages))
    assert shown


def test_installed_package_has_the_cheats_of_platform_prove(packages, tmp_path):
    code = "from kernel_matrix.conformance.cheats import bundled_cheats; print(len(bundled_cheats()))"
    assert int(run_python("-c", code, packages=str(packages), folder=tmp_path)) == len(bundled_cheats())


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
