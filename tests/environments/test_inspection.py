"""Environments as toolchains: what is read of them, and which cannot be used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_matrix.environments import AUTO, differences, inspection
from kernel_matrix.environments.inspection import check_unchanged, read_environment
from kernel_matrix.errors import PythonEnvironmentError
from kernel_matrix.inside.environment_description import stamps_of
from tests.environments.venvs import make_venv, packages_of

TORCH_VERSION = """
from typing import Optional
__version__ = '2.11.0+cu130'
debug = False
cuda: Optional[str] = '13.0'
git_version = '1234567'
hip: Optional[str] = None
"""


@pytest.fixture
def environment(tmp_path):
    """Return a function that makes a virtual environment with distributions that consist of a description only."""

    def made(name="env", **versions):
        folder = tmp_path / name
        make_venv(folder)
        for distribution, version in versions.items():
            install(folder, distribution, version)
        return folder

    return made


def install(folder, distribution, version, files=""):
    info = packages_of(folder) / f"{distribution}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (info / "RECORD").write_text(files)


@pytest.mark.parametrize("more", ["", "rocm: Optional[str] = '7.2.4'\n"])
def test_torch_for_hip_is_built_for_rocm(environment, more):
    folder = environment(torch="2.10.0+rocm7.2.4")
    (packages_of(folder) / "torch").mkdir()
    (packages_of(folder) / "torch" / "version.py").write_text(f"hip: Optional[str] = '7.2.53211-e1a6bc5663'\n{more}")
    assert read_environment(str(folder)).torch_builds == {"rocm": "7.2.4" if more else "7.2.53211-e1a6bc5663"}


def test_environment_lists_its_distributions_and_folders(environment):
    folder = environment(torch="2.11.0+cu130", triton="3.6.0", Some_Package="1.0")
    (packages_of(folder) / "torch").mkdir()
    (packages_of(folder) / "torch" / "version.py").write_text(TORCH_VERSION)
    found = read_environment(str(folder))
    assert found.distributions == {"torch": "2.11.0+cu130", "triton": "3.6.0", "some-package": "1.0"}
    assert (found.torch, found.triton) == ("2.11.0", "3.6.0")
    assert found.torch_builds == {"cuda": "13.0"}
    assert found.executable == str(folder / "bin" / "python")
    assert {str(folder), sys.base_prefix, str(packages_of(folder))} <= set(found.folders)


def test_auto_is_the_environment_of_this_program():
    pytest.importorskip("torch")
    found = read_environment(AUTO)
    assert found.prefix == sys.prefix
    assert sysconfig.get_paths()["purelib"] in found.folders


def test_digest_stays_until_a_file_changes(environment):
    folder = environment(torch="2.11.0")
    first = read_environment(str(folder)).digest
    assert first == read_environment(str(folder)).digest
    record = next(packages_of(folder).glob("torch-*/RECORD"))
    record.write_text("torch/__init__.py,sha256=abc,10\n")
    assert read_environment(str(folder)).digest != first


def test_digest_does_not_depend_on_the_path(environment):
    one, other = environment("one", torch="2.11.0"), environment("other", torch="2.11.0")
    assert read_environment(str(one)).digest == read_environment(str(other)).digest


def test_interpreter_may_be_named_itself(environment):
    folder = environment(torch="2.11.0")
    assert read_environment(str(folder / "bin" / "python")).prefix == str(folder)


def test_conda_packages_are_listed(environment):
    folder = environment(torch="2.11.0")
    (folder / "conda-meta").mkdir()
    (folder / "conda-meta" / "cuda-nvcc-13.0.88-h1_0.json").write_text("{}")
    assert read_environment(str(folder)).distributions["conda:cuda-nvcc"] == "13.0.88-h1_0"


def test_absent_environment_is_refused(tmp_path):
    with pytest.raises(PythonEnvironmentError, match="has no Python"):
        read_environment(str(tmp_path / "gone"))


def test_environment_without_torch_is_refused(environment):
    with pytest.raises(PythonEnvironmentError, match="has no PyTorch"):
        read_environment(str(environment(numpy="2.0")))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 3", "could not be described"),
        ("echo no JSON", "is no Python that runs"),
        ('echo "{\\"python\\": \\"CPython 3.8.1\\"}"', "cells need Python 3.9 or newer"),
    ],
)
def test_program_that_is_no_usable_python_is_refused(tmp_path, script, words):
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(PythonEnvironmentError, match=words):
        read_environment(str(program))


def test_users_settings_do_not_count(environment, monkeypatch, tmp_path):
    folder = environment(torch="2.11.0")
    before = read_environment(str(folder))
    packages = tmp_path / "site-packages"
    (packages / "torch-9.9.dist-info").mkdir(parents=True)
    (packages / "torch-9.9.dist-info" / "METADATA").write_text("Name: torch\nVersion: 9.9\n")
    monkeypatch.setenv("PYTHONPATH", os.fspath(packages))
    assert read_environment(str(folder)) == before


def test_differences_name_both_versions():
    changes = differences({"torch": "2.10.0", "numpy": "2.0"}, {"torch": "2.11.0", "pip": "25"})
    assert changes == ["numpy: 2.0 → absent", "pip: absent → 25", "torch: 2.10.0 → 2.11.0"]


def test_description_runs_on_its_own():
    file = Path(__file__).parents[2] / "runner" / "kernel_matrix" / "inside" / "environment_description.py"
    done = subprocess.run([sys.executable, "-I", "-S", file], capture_output=True, check=True, text=True)
    assert done.stdout.startswith("{")


@pytest.mark.parametrize("change", ["reinstall", "upgrade", "remove", "path_file", "settings", "torch", "interpreter"])
def test_each_change_shows_in_the_stamps(environment, change):
    folder = environment(torch="2.11.0", numpy="2.0")
    packages = packages_of(folder)
    (packages / "torch").mkdir()
    (packages / "torch" / "version.py").write_text(TORCH_VERSION)
    before = read_environment(str(folder))
    assert stamps_of(before.stamps) == before.stamps
    {
        "reinstall": lambda: (packages / "numpy-2.0.dist-info" / "RECORD").write_text("numpy/a.py,sha256=a,1\n"),
        "upgrade": lambda: (packages / "numpy-2.0.dist-info").rename(packages / "numpy-2.1.dist-info"),
        "remove": lambda: shutil.rmtree(packages / "numpy-2.0.dist-info"),
        "path_file": lambda: (packages / "more.pth").write_text("/elsewhere\n"),
        "settings": lambda: (folder / "pyvenv.cfg").write_text("include-system-site-packages = true\n"),
        "torch": lambda: (packages / "torch" / "version.py").write_text(TORCH_VERSION.replace("13.0", "12.8")),
        "interpreter": lambda: replace_interpreter(folder),
    }[change]()
    assert stamps_of(before.stamps) != before.stamps


def replace_interpreter(folder):
    (folder / "bin" / "python").unlink()
    shutil.copy(sys.executable, folder / "bin" / "python")


def test_untouched_environment_is_not_described_again(environment, monkeypatch):
    before = read_environment(str(environment(torch="2.11.0")))
    described = []
    monkeypatch.setattr(inspection, "read_environment", lambda where: described.append(where) or before)
    check_unchanged(before)
    assert not described
    check_unchanged(replace(before, stamps={}))  # nothing is known of its files
    assert described == [before.executable]


def test_change_is_named_when_it_is_looked_for(environment):
    folder = environment(torch="2.11.0")
    before = read_environment(str(folder))
    check_unchanged(before)
    install(folder, "numpy", "2.0")
    with pytest.raises(PythonEnvironmentError, match="numpy: absent → 2"):
        check_unchanged(before)
